// Which tokens a model looks at to repeat a text: KVzip's scores (arXiv 2505.23416), of which shares of heads and
// scorers are made.
#pragma once

#include <functional>
#include <span>

#include "palimpsest/engine/sequence/full_reader.h"

namespace palimpsest {

inline constexpr std::size_t kRepeatedPart = 512;  // tokens of a part with its instruction, as a session's chunk

// Reads `text`, which the reader has read and nothing after it, again in parts behind it, `instruction` before each; a
// part is forgotten before the next one. scores, [heads][text.size()]: raised to the max weight that a query of a part
// gives to each token of the text; 0 is outside of the windows of a layer. `read` gets the tokens of each part that is
// done; returning false ends it. Returns whether it came to its end.
bool read_repetition(FullReader& reader, std::span<const TokenId> text, std::span<const TokenId> instruction,
                     std::span<float> scores, const std::function<bool(std::size_t tokens)>& read);

}  // namespace palimpsest
