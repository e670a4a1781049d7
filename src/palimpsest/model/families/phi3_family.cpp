#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Long and short RoPE factors (hyperparameters.cpp). A sliding window in the metadata is ignored, as in libllama: the
// first models were trained with a window and published without.
const Family kPhi3Family = {
    .architecture = "phi3",
    .models = "Phi 3, 3.5 and 4",
    .limits = "images",
    .packed_qkv = true,
    .feed_forward = FeedForward::kPackedGate,
    .tiny = {.tied = false},
};

// RMS norms with biases.
const Family kPhiMoeFamily = {
    .architecture = "phimoe",
    .models = "Phi 3.5 MoE",
    .norm_bias = Presence::kYes,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .output_bias = Presence::kYes,
    .tiny = {.tied = false, .experts = 8, .experts_used = 2},
};

// Attention and feed-forward in parallel after one norm; RoPE on part of a head.
const Family kPhi2Family = {
    .architecture = "phi2",
    .models = "Phi 1, 1.5 and 2",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .packed_qkv = true,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kYes,
    .parallel = true,
    .output = Presence::kYes,
    .output_bias = Presence::kYes,
    .tiny = {.rope_dims = 16, .tied = false},
};

}  // namespace palimpsest
