// Finds where a prompt continues a text that was read before, although the two may be split into tokens differently: a
// generated text is not always split as the tokenizer would.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct Continuation {
  std::size_t matched = 0;    // the prompt's first tokens that lie in the text read before
  std::vector<TokenId> rest;  // to read after that text; empty: the prompt is that text

  bool operator==(const Continuation&) const = default;
};

// The prompt's continuation of `read`; nullopt: `read` is not its beginning. Tokens are compared first,
// from the first difference on their bytes. A control token equals itself only, not its text. A token of the prompt
// that crosses the end of `read` is split. `vocabulary`: nullptr compares tokens only.
std::optional<Continuation> continuation(std::span<const TokenId> read, std::span<const TokenId> prompt,
                                         const Vocabulary* vocabulary);

}  // namespace palimpsest
