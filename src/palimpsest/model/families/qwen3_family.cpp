#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Qwen 3, dense. Its head_dim is not width / heads.
const Family kQwen3Family = {
    .architecture = "qwen3",
    .rope = RopeKind::kHalves,
    .qk_norm = true,
};

}  // namespace palimpsest
