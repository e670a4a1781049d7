#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Learned positions, ReLU. libllama does not support this architecture; tools/convert makes the files.
const Family kOptFamily = {
    .architecture = "opt",
    .models = "OPT",
    .limits = "OPT 350m, whose norms come after",
    .in_libllama = false,
    .rope = RopeKind::kNone,
    .learned_positions = Presence::kYes,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kRelu,
    .feed_forward_bias = Presence::kYes,
    .tiny = {.kv_heads = 8},
};

}  // namespace palimpsest
