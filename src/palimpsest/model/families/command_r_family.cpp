#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
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
          h.rotate_in_windows(keys.windows(h.layers, 0, 4));
          h.logit_scale = static_cast<float>(keys.number("logit_scale", 1, 1e-6, 1e6));
        },
    .tiny = {.layers = 5,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"logit_scale", ExtraKey::Type::kNumber, 0.0625}}},
};

// The same with experts, of which all tokens use one; the mean of both is added. The first, dense layers have rotary
// positions, too.
const Family kCohere2MoeFamily = {
    .architecture = "cohere2moe",
    .models = "Command A, mixtures of experts",
    .limits = "multi-token prediction, files with RMS norms",
    .rope = RopeKind::kPairs,
    .norm = Norm::kLayer,
    .feed_forward_norm = Presence::kNo,
    .experts = Presence::kYes,
    .parallel = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          if (h.shared_feed_forward > 0) {
            h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", h.shared_feed_forward);
            h.mixture_scale = 0.5F;
          }
          keys.required("attention.sliding_window", INT32_MAX);
          h.rotate_in_windows(keys.windows(h.layers, 0, 4));
          for (int i = 0; i < h.layers; ++i)
            h.local_rope_layers.push_back(i < h.leading_dense || h.geometry.layer(i).window != INT32_MAX);
          h.logit_scale = static_cast<float>(keys.number("logit_scale", 1, 1e-6, 1e6));
        },
    .tiny = {.layers = 5,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"attention.sliding_window_pattern", ExtraKey::Type::kPattern, 4},
                      {"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"logit_scale", ExtraKey::Type::kNumber, 0.0625}}},
};

}  // namespace palimpsest
