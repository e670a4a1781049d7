#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kQwen2Family = {
    .architecture = "qwen2",
    .models = "Qwen 2 and 2.5",
    .qkv_bias = Presence::kYes,
};

}  // namespace palimpsest
