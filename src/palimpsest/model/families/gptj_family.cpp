#include "palimpsest/model/families/families.h"

namespace palimpsest {

// RoPE of neighbouring pairs on part of a head; attention and feed-forward in parallel after one norm. libllama does
// not support this architecture; tools/convert makes the files.
const Family kGptJFamily = {
    .architecture = "gptj",
    .models = "GPT-J",
    .in_libllama = false,
    .rope = RopeKind::kPairs,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kYes,
    .parallel = true,
    .output = Presence::kYes,
    .output_bias = Presence::kYes,
    .tiny = {.kv_heads = 8, .rope_dims = 16, .tied = false},
};

}  // namespace palimpsest
