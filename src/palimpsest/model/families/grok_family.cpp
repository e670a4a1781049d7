#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

#include <cmath>

namespace palimpsest {

// Norms after both parts of a layer, soft caps; Grok 2 has a dense feed-forward beside the experts.
const Family kGrokFamily = {
    .architecture = "grok",
    .models = "Grok 1 and 2",
    .post_norms = Presence::kYes,
    .post_attention_norm_name = "attn_output_norm",
    .activation = Activation::kGelu,
    .experts = Presence::kYes,
    .shared_experts_end = "",
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          const auto number = [&](const char* key, double fallback) {
            return static_cast<float>(keys.number(key, fallback, 0, 1e6));
          };
          h.embedding_scale = number("embedding_scale", 78.38367176906169);
          h.logit_scale = number("logit_scale", 0.5773502691896257);
          h.attention_scale = number("attention.output_scale", 0.08838834764831845);
          h.attention_soft_cap = number("attn_logit_softcapping", 30);
          if (!keys.has("rope.scaling.yarn_beta_fast")) h.rope.yarn_beta_fast = 8;
          h.output_soft_cap = number("final_logit_softcapping", 0);
          if (keys.file().find("blk.0.ffn_up.weight") == nullptr) return;
          h.shared_feed_forward = h.feed_forward.front();
          h.mixture_scale = std::sqrt(0.5F);
        },
    .tiny = {.experts = 4,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .keys = {{"embedding_scale", ExtraKey::Type::kNumber, 8},
                      {"attn_logit_softcapping", ExtraKey::Type::kNumber, 5},
                      {"final_logit_softcapping", ExtraKey::Type::kNumber, 10}}},
};

}  // namespace palimpsest
