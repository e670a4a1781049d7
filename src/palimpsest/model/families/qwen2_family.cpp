#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Qwen 2 and 2.5.
const Family kQwen2Family = {
    .architecture = "qwen2",
    .rope = RopeKind::kHalves,
    .qkv_bias = Presence::kYes,
};

}  // namespace palimpsest
