#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Experts are chosen from the best groups.
const Family kBailingMoe2Family = {
    .architecture = "bailingmoe2",
    .models = "Ling 2 and Ring 2",
    .limits = "multi-token prediction",
    .qk_norm = QkNorm::kHead,
    .packed_qkv = true,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          const int count = keys.required("expert_shared_count", 1 << 10);
          h.shared_feed_forward = count * keys.optional("expert_shared_feed_forward_length", h.expert_feed_forward,
                                                        ArchMetadata::kMax / count);
        },
    .tiny = {.layers = 3,
             .rope_dims = 16,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_gating_func", ExtraKey::Type::kInteger, 2},
                      {"expert_group_count", ExtraKey::Type::kInteger, 4},
                      {"expert_group_used_count", ExtraKey::Type::kInteger, 2},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

const Family kBailingMoeFamily = {
    .architecture = "bailingmoe",
    .models = "Ling 1 (Lite, Plus)",
    .rope = RopeKind::kPairs,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_experts(keys, h, Routing::kSoftmax); },
    .tiny = {.tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
