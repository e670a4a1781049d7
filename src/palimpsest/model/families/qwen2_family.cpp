#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kQwen2Family = {
    .architecture = "qwen2",
    .models = "Qwen 2 and 2.5",
    .qkv_bias = Presence::kYes,
};

// For text, the rotary dimensions of time, height and width have the same position.
const Family kQwen2VlFamily = {
    .architecture = "qwen2vl",
    .models = "Qwen 2 VL and 2.5 VL",
    .limits = "images",
    .qkv_bias = Presence::kYes,
    // libllama 0.7.0 does not read this family's epsilon.
    .tiny = {.keys = {{"rope.dimension_sections", ExtraKey::Type::kSigned, 8},
                      {"attention.layer_norm_rms_epsilon", ExtraKey::Type::kNumber, 1e-12}}},
};

const Family kQwen2MoeFamily = {
    .architecture = "qwen2moe",
    .models = "Qwen 1.5 and 2, mixtures of experts",
    .qkv_bias = Presence::kYes,
    .experts = Presence::kYes,
    .gated_shared_experts = true,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.normalize_experts = false;
          if (!keys.has("expert_feed_forward_length")) h.expert_feed_forward /= h.experts_used;
          h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", h.feed_forward.front());
        },
    .tiny = {.tied = false, .experts = 8, .experts_used = 2, .shared_feed_forward = 256},
};

}  // namespace palimpsest
