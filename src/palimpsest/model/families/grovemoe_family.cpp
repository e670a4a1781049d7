#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// A Qwen 3 mixture whose groups of experts have one adjugate expert each (arXiv 2508.07785).
const Family kGroveMoeFamily = {
    .architecture = "grovemoe",
    .models = "GroveMoE",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.adjugate_group = keys.required("experts_per_group", h.experts);
          if (h.experts % h.adjugate_group != 0)
            fail("{}: {} experts are in groups of {}: damaged", keys.file().path(), h.experts, h.adjugate_group);
          if (const int groups = h.experts / h.adjugate_group; h.experts_used > groups)  // libllama aborts
            fail("{}: {} experts per token and {} groups are not supported for grovemoe", keys.file().path(),
                 h.experts_used, groups);
          h.adjugate_feed_forward = keys.required("expert_chunk_feed_forward_length");
          h.adjugate_scale = static_cast<float>(keys.number("expert_group_scale", 0.05, 0, 1e6));
        },
    .tiny = {.head_dim = 64,
             .experts = 8,
             .experts_used = 3,
             .adjugate_group = 2,
             .adjugate_feed_forward = 64,
             .keys = {{"expert_group_scale", ExtraKey::Type::kNumber, 0.5}}},
};

}  // namespace palimpsest
