#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Norms after each part of a layer, none before; queries and keys are normed over all heads. OLMo 3 has sliding windows
// in three of four layers, without the RoPE scaling of the others.
const Family kOlmo2Family = {
    .architecture = "olmo2",
    .models = "OLMo 2 and 3",
    .attention_norm = Presence::kNo,
    .post_norms = Presence::kYes,
    .feed_forward_norm = Presence::kNo,
    .qk_norm = QkNorm::kAllHeads,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 4));
          if (!keys.has("attention.sliding_window")) return;
          h.local_rope = RopeOptions::unscaled(h.rope);
        },
    .tiny = {.tied = false},
};

}  // namespace palimpsest
