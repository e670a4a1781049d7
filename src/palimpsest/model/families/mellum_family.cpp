#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Three of four layers have windows, without the rope scaling of the others.
const Family kMellumFamily = {
    .architecture = "mellum",
    .models = "Mellum 2",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 4));
          if (h.geometry.windowed_layers() > 0) h.local_rope = RopeOptions::unscaled(h.rope);
        },
    .tiny = {.layers = 5,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24}}},
};

}  // namespace palimpsest
