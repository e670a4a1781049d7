#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

#include <cmath>

namespace palimpsest {

// Every other layer has a sliding window; scores and logits are soft-capped; norms before and after both parts of a
// layer.
const Family kGemma2Family = {
    .architecture = "gemma2",
    .models = "Gemma 2",
    .post_norms = Presence::kYes,
    .activation = Activation::kGelu,
    .scaled_embedding = true,
    .output = Presence::kNo,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 4096, 2));
          h.attention_soft_cap = static_cast<float>(keys.number("attn_logit_softcapping", 50, 0, 1e6));
          h.output_soft_cap = static_cast<float>(keys.number("final_logit_softcapping", 30, 0, 1e6));
          // The 27B model scales by its width per query head, which the metadata does not contain.
          if (h.layers == 46)
            h.attention_scale = 1 / std::sqrt(static_cast<float>(h.width / h.geometry.layer(0).query_heads));
        },
    .tiny = {.head_dim = 64,
             .layers = 4,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"attn_logit_softcapping", ExtraKey::Type::kNumber, 2},
                      {"final_logit_softcapping", ExtraKey::Type::kNumber, 3}}},
};

}  // namespace palimpsest
