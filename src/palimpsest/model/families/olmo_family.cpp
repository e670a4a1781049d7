#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Norms have no weights; queries, keys and values may be clamped.
const Family kOlmoFamily = {
    .architecture = "olmo",
    .models = "OLMo 1",
    .rope = RopeKind::kPairs,
    .norm = Norm::kBareLayer,
    .read = [](const ArchMetadata& keys,
               Hyperparameters& h) { h.clamp_qkv = static_cast<float>(keys.number("attention.clamp_kqv", 0, 0, 1e9)); },
    .tiny = {.keys = {{"attention.clamp_kqv", ExtraKey::Type::kNumber, 2}}},
};

const Family kOlmoeFamily = {
    .architecture = "olmoe",
    .models = "OLMoE",
    .qk_norm = QkNorm::kAllHeads,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .read = [](const ArchMetadata&, Hyperparameters& h) { h.normalize_experts = false; },
    .tiny = {.kv_heads = 8, .tied = false, .experts = 8, .experts_used = 2},
};

}  // namespace palimpsest
