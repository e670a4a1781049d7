#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Every fourth layer has no positions (NoPE).
const Family kSmolLm3Family = {
    .architecture = "smollm3",
    .models = "SmolLM3",
    .rope = RopeKind::kPairs,
    .read =
        [](const ArchMetadata&, Hyperparameters& h) {
          h.local_rope = RopeOptions::unrotated(h.rope);
          for (int i = 0; i < h.layers; ++i) h.local_rope_layers.push_back((i + 1) % 4 == 0);
        },
    .tiny = {.layers = 5},
};

}  // namespace palimpsest
