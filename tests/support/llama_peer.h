#pragma once

#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest::testing {

// libllama's own logits of a file on the CPU, f32 cache: [tokens][vocabulary], teacher-forced in
// chunks. `context`: of libllama's; 0: what the tokens need. Throws std::runtime_error if libllama refuses the file.
std::vector<float> llama_logits(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk,
                                bool flash_attention = false, int context = 0);

// libllama's quantisation of a file. `type`: "f16", "q8_0", "q4_0", "q4_K".
void llama_quantize(const std::string& from, const std::string& to, const std::string& type);

}  // namespace palimpsest::testing
