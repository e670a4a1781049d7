#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Llama 2 and 3, Mistral, TinyLlama, SmolLM. The converter permuted Q and K so that neighbours turn together.
const Family kLlamaFamily = {
    .architecture = "llama",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
};

}  // namespace palimpsest
