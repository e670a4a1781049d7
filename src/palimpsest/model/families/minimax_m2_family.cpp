#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kMinimaxM2Family = {
    .architecture = "minimax-m2",
    .models = "MiniMax M2",
    .qk_norm = QkNorm::kAllHeads,
    .experts = Presence::kYes,
    .selection_bias = Presence::kYes,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          h.normalize_experts = true;
        },
    .tiny = {.rope_dims = 16,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .keys = {{"expert_gating_func", ExtraKey::Type::kInteger, 2}}},
};

}  // namespace palimpsest
