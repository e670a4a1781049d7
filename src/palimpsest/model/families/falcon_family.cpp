#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Attention and feed-forward in parallel; the 40B model has a norm for each.
const Family kFalconFamily = {
    .architecture = "falcon",
    .models = "Falcon 1 and 2",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .packed_qkv = true,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .parallel = true,
    .read = [](const ArchMetadata& keys,
               Hyperparameters& h) { h.second_norm = keys.file().find("blk.0.attn_norm_2.weight") != nullptr; },
    .tiny = {.kv_heads = 1},
};

}  // namespace palimpsest
