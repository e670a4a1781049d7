#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Every other layer has a window; each query head has a sink logit; routers and experts have biases (arXiv 2508.10925).
const Family kGptOssFamily = {
    .architecture = "gpt-oss",
    .models = "gpt-oss",
    .feed_forward_norm_name = "post_attention_norm",
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .sink_logits = Presence::kYes,
    .activation = Activation::kClampedSwiglu,
    .experts = Presence::kYes,
    .routing = Routing::kSoftmaxOfChosen,
    .expert_bias = Presence::kYes,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          keys.required("attention.sliding_window", INT32_MAX);
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 2));
        },
    .tiny = {.head_dim = 64,
             .layers = 4,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24}}},
};

}  // namespace palimpsest
