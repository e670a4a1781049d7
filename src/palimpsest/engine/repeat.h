// A prompt that the model is asked to repeat, for policies that see what it looks at meanwhile (Signals::repeat).
#pragma once

#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// SessionOptions::repeat in a model's own tokens: KVzip's sentence (arXiv 2505.23416, section 3.2).
std::vector<TokenId> repeat_instruction(const Vocabulary& vocabulary);

}  // namespace palimpsest
