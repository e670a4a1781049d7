#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Attention and feed-forward in parallel after one norm; logits are scaled. Command R+ norms each head of Q and K.
const Family kCommandRFamily = {
    .architecture = "command-r",
    .models = "Command R, Command R+, Aya",
    .rope = RopeKind::kPairs,
    .norm = Norm::kLayer,
    .feed_forward_norm = Presence::kNo,
    .qk_norm = QkNorm::kPerHead,
    .qk_norm_presence = Presence::kOptional,
    .qkv_bias = Presence::kOptional,
    .parallel = true,
    .output = Presence::kNo,
    .read = [](const ArchMetadata& keys,
               Hyperparameters& h) { h.logit_scale = static_cast<float>(keys.number("logit_scale", 1, 1e-6, 1e6)); },
    .tiny = {.keys = {{"logit_scale", ExtraKey::Type::kNumber, 0.0625}}},
};

// The same with windows in three of four layers; only these have rotary positions.
const Family kCohere2Family = {
    .architecture = "cohere2",
    .models = "Command R7B, Command A",
    .limits = "images",
    .rope = RopeKind::kPairs,
    .norm = Norm::kLayer,
    .feed_forward_norm = Presence::kNo,
    .qkv_bias = Presence::kOptional,
    .parallel = true,
    .output = Presence::kNo,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          keys.required("attention.sliding_window", INT32_MAX);
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 4));
          h.local_rope = h.rope;
          h.rope = RopeOptions::unrotated(h.rope);
          h.logit_scale = static_cast<float>(keys.number("logit_scale", 1, 1e-6, 1e6));
        },
    .tiny = {.layers = 5,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"logit_scale", ExtraKey::Type::kNumber, 0.0625}}},
};

}  // namespace palimpsest
