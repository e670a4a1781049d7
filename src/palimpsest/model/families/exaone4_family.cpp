#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Norms after each part of a layer, none before. The 32B model has windows in three of four layers; only these have
// rotary positions.
const Family kExaone4Family = {
    .architecture = "exaone4",
    .models = "EXAONE 4",
    .attention_norm = Presence::kNo,
    .post_norms = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .qk_norm = QkNorm::kHead,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          constexpr int kWindowedModel = 64;  // layers; only this one's files mean their windows
          if (h.layers != kWindowedModel) return;
          h.rotate_in_windows(keys.windows(h.layers, 4096, 4));
        },
};

// Norms before each part of a layer. Three of four layers have windows; only these have rotary positions.
const Family kExaoneMoeFamily = {
    .architecture = "exaone-moe",
    .models = "K-EXAONE",
    .limits = "multi-token prediction",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", h.shared_feed_forward);
          h.rotate_in_windows(keys.windows(h.layers, 128, 4));
        },
    .tiny = {.layers = 5,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_gating_func", ExtraKey::Type::kInteger, 2},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
