#pragma once

#include <string>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/model/rope_settings.h"

namespace palimpsest::testing {

// libllama's logits on the CPU with an f32 cache: [tokens][vocabulary], teacher-forced in chunks. `context`: libllama's
// context size; 0: as many as the tokens need. Throws std::runtime_error if libllama refuses the file.
std::vector<float> llama_logits(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk,
                                bool flash_attention = false, int context = 0);

// With rope scaling in libllama's own parameters, in chunks of 64.
std::vector<float> llama_logits_with_rope(const std::string& gguf, const std::vector<TokenId>& tokens,
                                          const RopeSettings& rope);

// With a LoRA adapter, in chunks of 64.
std::vector<float> llama_logits_with_adapter(const std::string& gguf, const std::vector<TokenId>& tokens,
                                             const std::string& adapter, float scale);

// The hidden states after the last norm, [tokens][width], likewise.
std::vector<float> llama_hidden(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk);

// Quantises a file with libllama. `type`: "f16", "q8_0", "q4_0", "q4_K".
void llama_quantize(const std::string& from, const std::string& to, const std::string& type);

}  // namespace palimpsest::testing
