#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Rotary by neighbours on part of a head; attention and feed-forward side by side behind one norm. libllama has no such
// graph; tools/convert makes the files.
const Family kGptJFamily = {
    .architecture = "gptj",
    .models = "GPT-J",
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
