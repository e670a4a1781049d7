#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// RoPE by halves on part of a head; attention and feed-forward in parallel, each after its own norm.
const Family kGptNeoxFamily = {
    .architecture = "gptneox",
    .models = "Pythia, GPT-NeoX",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .packed_qkv = true,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kYes,
    .output = Presence::kYes,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { h.parallel = keys.flag("use_parallel_residual", true); },
    .tiny = {.kv_heads = 8,
             .rope_dims = 8,
             .tied = false,
             .keys = {{"use_parallel_residual", ExtraKey::Type::kFlag, 1}}},
};

}  // namespace palimpsest
