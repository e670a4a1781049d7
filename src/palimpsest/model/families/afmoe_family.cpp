#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Three of four layers have windows; only these have rotary positions. Norms before and after each part of a layer.
const Family kAfmoeFamily = {
    .architecture = "afmoe",
    .models = "Arcee Trinity",
    .post_norms = Presence::kYes,
    .qk_norm = QkNorm::kHead,
    .attention_gate = true,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .scaled_embedding = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          h.rotate_in_windows(keys.windows(h.layers, 0, 4));
        },
    .tiny = {.layers = 5,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
