#pragma once

#include <string_view>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest::testing {

// Tokens whose concatenation is `text`, without the space that a tokenizer may add: greedy, the longest first.
inline std::vector<TokenId> spell(const Vocabulary& words, std::string_view text) {
  const auto texts = words.token_texts();
  std::vector<TokenId> out;
  while (!text.empty()) {
    const TokenTexts::Entry* best = nullptr;
    for (const TokenTexts::Entry& entry : texts->entries())
      if (text.starts_with(texts->text(entry)) && (best == nullptr || entry.length > best->length)) best = &entry;
    if (best == nullptr) return {};
    out.push_back(best->token);
    text.remove_prefix(best->length);
  }
  return out;
}

}  // namespace palimpsest::testing
