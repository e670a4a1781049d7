#include "palimpsest/model/families/families.h"

namespace palimpsest {

// The head dimension is not width / heads.
const Family kQwen3Family = {
    .architecture = "qwen3",
    .models = "Qwen 3, dense",
    .qk_norm = QkNorm::kHead,
    .tiny = {.head_dim = 64},
};

// For text, the rotary dimensions of time, height and width have the same position.
const Family kQwen3VlFamily = {
    .architecture = "qwen3vl",
    .models = "Qwen 3 VL, dense",
    .limits = "images",
    .qk_norm = QkNorm::kHead,
    .tiny = {.keys = {{"rope.dimension_sections", ExtraKey::Type::kSigned, 8}}},
};

}  // namespace palimpsest
