#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Norms after each part of a layer, none before. The 32B model has windows in three of four layers; only these have
// rotary positions.
const Family kExaone4Family = {
    .architecture = "exaone4",
    .models = "EXAONE 4",
    .attention_norm = Presence::kNo,
    .post_norms = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .qk_norm = QkNorm::kHead,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          constexpr int kWindowedModel = 64;  // layers; only this one's files mean their windows
          if (h.layers != kWindowedModel) return;
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 4096, 4));
          h.local_rope = h.rope;
          h.rope = RopeOptions::unrotated(h.rope);
        },
};

}  // namespace palimpsest
