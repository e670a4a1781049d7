#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

#include <cmath>

namespace palimpsest {

// Five of six layers have a sliding window and their own RoPE base.
const Family kGemma3Family = {
    .architecture = "gemma3",
    .models = "Gemma 3",
    .limits = "images",
    .post_norms = Presence::kYes,
    .qk_norm = QkNorm::kHead,
    .activation = Activation::kGelu,
    .scaled_embedding = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 6));
          h.output_soft_cap = static_cast<float>(keys.number("final_logit_softcapping", 0, 0, 1e6));
          h.local_rope = RopeOptions::unscaled(h.rope);
          h.local_rope->base = keys.number("rope.freq_base_swa", 10000, 1, 1e15);
          // The 27B model scales by its width per query head, which the metadata does not contain.
          if (h.layers == 62)
            h.attention_scale = 1 / std::sqrt(static_cast<float>(h.width / h.geometry.layer(0).query_heads));
        },
    .tiny = {.head_dim = 64,
             .layers = 7,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"rope.freq_base", ExtraKey::Type::kNumber, 1000000}}},
};

}  // namespace palimpsest
