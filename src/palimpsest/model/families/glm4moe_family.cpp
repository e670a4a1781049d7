#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kGlm4MoeFamily = {
    .architecture = "glm4moe",
    .models = "GLM 4.5, 4.6 and 4.7",
    .limits = "images, multi-token prediction",
    .feed_forward_norm_name = "post_attention_norm",
    .qk_norm = QkNorm::kHead,
    .qk_norm_presence = Presence::kOptional,
    .qkv_bias = Presence::kOptional,
    .experts = Presence::kYes,
    .selection_bias = Presence::kYes,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_experts(keys, h, Routing::kSigmoid); },
    .tiny = {.layers = 3,
             .rope_dims = 16,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
