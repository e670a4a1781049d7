#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// RoPE on part of a head. The 12B model norms each head of Q and K, and uses one norm for both parts of a layer.
const Family kStableLmFamily = {
    .architecture = "stablelm",
    .models = "StableLM 2 and 3B",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .feed_forward_norm = Presence::kOptional,
    .qk_norm = QkNorm::kPerHead,
    .qk_norm_presence = Presence::kOptional,
    .qkv_bias = Presence::kOptional,
    .output = Presence::kYes,
    .read = [](const ArchMetadata& keys,
               Hyperparameters& h) { h.parallel = keys.file().find("blk.0.ffn_norm.weight") == nullptr; },
    .tiny = {.rope_dims = 8, .tied = false},
};

}  // namespace palimpsest
