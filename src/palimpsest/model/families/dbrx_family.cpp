#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kDbrxFamily = {
    .architecture = "dbrx",
    .models = "DBRX",
    .norm = Norm::kLayer,
    .feed_forward_norm_name = "attn_output_norm",
    .packed_qkv = true,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .read = [](const ArchMetadata& keys,
               Hyperparameters& h) { h.clamp_qkv = static_cast<float>(keys.number("attention.clamp_kqv", 0, 0, 1e9)); },
    .tiny = {.tied = false,
             .experts = 4,
             .experts_used = 2,
             .keys = {{"attention.clamp_kqv", ExtraKey::Type::kNumber, 2}}},
};

}  // namespace palimpsest
