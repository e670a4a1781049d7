#include "palimpsest/model/families/families.h"

namespace palimpsest {

// The head dimension is not width / heads.
const Family kQwen3Family = {
    .architecture = "qwen3",
    .models = "Qwen 3, dense",
    .qk_norm = QkNorm::kHead,
    .tiny = {.head_dim = 64},
};

}  // namespace palimpsest
