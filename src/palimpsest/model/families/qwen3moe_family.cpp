#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kQwen3MoeFamily = {
    .architecture = "qwen3moe",
    .models = "Qwen 3, mixtures of experts",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .tiny = {.head_dim = 64, .experts = 8, .experts_used = 2},
};

}  // namespace palimpsest
