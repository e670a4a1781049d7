#include "palimpsest/model/families/families.h"

namespace palimpsest {

// The converter permutes Q and K so that neighbours are rotary pairs. Files without rotary dimensions are NoPE.
const Family kLlamaFamily = {
    .architecture = "llama",
    .models = "Llama 2 and 3, Mistral, Mixtral, TinyLlama, SmolLM",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .experts = Presence::kOptional,
};

}  // namespace palimpsest
