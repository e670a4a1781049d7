// The instruction to repeat the prompt, for policies with Signals::repeat.
#pragma once

#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// SessionOptions::repeat in the model's tokens: KVzip's sentence (arXiv 2505.23416, section 3.2).
std::vector<TokenId> repeat_instruction(const Vocabulary& vocabulary);

}  // namespace palimpsest
