#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kQwen3MoeFamily = {
    .architecture = "qwen3moe",
    .models = "Qwen 3, mixtures of experts",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .tiny = {.head_dim = 64, .experts = 8, .experts_used = 2},
};

const Family kQwen3VlMoeFamily = {
    .architecture = "qwen3vlmoe",
    .models = "Qwen 3 VL, mixtures of experts",
    .limits = "images",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .tiny = {.experts = 4, .experts_used = 2, .keys = {{"rope.dimension_sections", ExtraKey::Type::kSigned, 8}}},
};

}  // namespace palimpsest
