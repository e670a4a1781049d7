#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kGpt2Family = {
    .architecture = "gpt2",
    .models = "GPT-2",
    .rope = RopeKind::kNone,
    .learned_positions = Presence::kYes,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .packed_qkv = true,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kYes,
    .tiny = {.kv_heads = 8},
};

}  // namespace palimpsest
