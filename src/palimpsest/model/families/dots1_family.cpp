#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kDots1Family = {
    .architecture = "dots1",
    .models = "dots.llm1",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .output = Presence::kYes,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_experts(keys, h, Routing::kSigmoid); },
    .tiny = {.kv_heads = 8,
             .layers = 3,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_gating_func", ExtraKey::Type::kInteger, 2},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
