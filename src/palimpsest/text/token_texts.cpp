#include "palimpsest/text/token_texts.h"

#include <algorithm>

namespace palimpsest {

TokenTexts::TokenTexts(const std::vector<std::string>& texts) : index_(texts.size(), kNoText) {
  for (TokenId token = 0; token < static_cast<TokenId>(texts.size()); ++token) {
    const std::string& piece = texts[static_cast<std::size_t>(token)];
    if (piece.empty()) continue;
    entries_.push_back({.token = token,
                        .begin = static_cast<std::uint32_t>(bytes_.size()),
                        .length = static_cast<std::uint32_t>(piece.size())});
    bytes_ += piece;
    longest_ = std::max(longest_, piece.size());
  }
  std::ranges::sort(entries_, [&](const Entry& a, const Entry& b) { return text(a) < text(b); });
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_[static_cast<std::size_t>(entries_[i].token)] = static_cast<std::uint32_t>(i);
    if (i == 0) continue;
    const std::string_view a = text(entries_[i - 1]), b = text(entries_[i]);
    entries_[i].shared = static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  }
}

}  // namespace palimpsest
