#include "palimpsest/model/families/families.h"

namespace palimpsest {

// The embedding is scaled by sqrt(width). (The converter has added 1 to the norms' weights.)
const Family kGemmaFamily = {
    .architecture = "gemma",
    .models = "Gemma",
    .activation = Activation::kGelu,
    .scaled_embedding = true,
    .output = Presence::kNo,
    .tiny = {.head_dim = 64},
};

}  // namespace palimpsest
