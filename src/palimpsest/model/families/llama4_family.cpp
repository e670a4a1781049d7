#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Three of four layers have rotary positions and attend to their chunk of the text only; the fourth has no positions,
// and scales its queries by the logarithm of their position.
const Family kLlama4Family = {
    .architecture = "llama4",
    .models = "Llama 4 Scout and Maverick",
    .limits = "images, more than one expert per token",
    .rope = RopeKind::kPairs,
    .qk_norm = QkNorm::kUnweighted,
    .experts = Presence::kYes,
    .experts_of_scaled = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          const std::string& path = keys.file().path();
          constexpr int kChunk = 8192, kPeriod = 4;
          if (h.experts_used != 1)
            fail("{}: {} experts per token are not supported for llama4: use a model with one", path, h.experts_used);
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, kChunk, kPeriod), true);
          if (h.geometry.windowed_layers() == 0)
            fail("{}: a llama4 model without chunked attention is not supported; use another model", path);
          h.local_rope = RopeOptions::unrotated(h.rope);
          for (int i = 0; i < h.layers; ++i) h.local_rope_layers.push_back((i + 1) % kPeriod == 0);
          h.query_temperature_slope = 0.1F;
          h.query_temperature_interval = kChunk;
          h.expert_interval = keys.required("interleave_moe_layer_step", 4096);
          h.shared_feed_forward = h.expert_feed_forward;
          h.routing = Routing::kSigmoid;
          h.normalize_experts = false;
          h.unweighted_qk_norm = h.experts != 128;  // Maverick, with 128, has none
        },
    .tiny = {.layers = 5,
             .experts = 4,
             .experts_used = 1,
             .shared_feed_forward = 512,
             .expert_interval = 2,
             .keys = {{"interleave_moe_layer_step", ExtraKey::Type::kInteger, 2}}},
};

}  // namespace palimpsest
