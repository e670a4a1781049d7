#include <cmath>

#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/families/read_latent.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// YaRN's magnitude is part of the scale; the file's multiplier is 0.1 times the model's. With one, rotations have
// none.
void read_magnitude(const ArchMetadata& keys, Hyperparameters& h) {
  if (h.rope.yarn_ext_factor == 0) return;
  const double multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 0, 1e6) * 10;
  const double log = std::log(h.rope.linear_scale), magnitude = 1 + 0.1 * (multiplier == 0 ? 1 : multiplier) * log;
  if (multiplier != 0) h.rope.yarn_attn_factor /= 1 + 0.1 * log;
  h.attention_scale *= static_cast<float>(magnitude * magnitude);
}

// Queries that grow with their position.
void read_temperature(const ArchMetadata& keys, Hyperparameters& h) {
  h.query_temperature_slope = static_cast<float>(keys.number("attention.temperature_scale", 0, 0, 1e6));
  if (h.query_temperature_slope == 0) return;
  h.query_temperature_interval = keys.required("attention.temperature_length", INT32_MAX);
  h.query_temperature_offset = 0;
  h.query_temperature_everywhere = true;
}

}  // namespace

// Latent attention (LatentAttention); the first layers are dense, the others have experts that all tokens use beside
// those of the router.
const Family kDeepseek2Family = {
    .architecture = "deepseek2",
    .models = "DeepSeek V2, V2 Lite, V3 and R1, Kimi K2, Moonlight",
    .limits = "multi-token prediction",
    .rope = RopeKind::kPairs,
    .yarn_log_multiplier = true,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_latent(keys, h);
          read_magnitude(keys, h);
          read_temperature(keys, h);
          read_experts(keys, h, Routing::kSoftmax);
        },
    .tiny = {.query_heads = 4,
             .kv_heads = 1,
             .head_dim = 64 + 16,
             .layers = 3,
             .rope_dims = 16,
             .value_dim = 64,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .latent = {.rank = 64, .query_rank = 64, .key = 32, .value = 32},
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_gating_func", ExtraKey::Type::kInteger, 2},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

const Family kMistral4Family = [] {
  Family out = kDeepseek2Family;
  out.architecture = "mistral4";
  out.models = "Mistral Small 4";
  out.limits = "images, multi-token prediction";
  out.tiny.keys.push_back({"attention.temperature_scale", ExtraKey::Type::kNumber, 0.1});
  out.tiny.keys.push_back({"attention.temperature_length", ExtraKey::Type::kInteger, 16});
  return out;
}();

// The first generation: ordinary attention.
const Family kDeepseekFamily = {
    .architecture = "deepseek",
    .models = "DeepSeek MoE 16B",
    .rope = RopeKind::kPairs,
    .experts = Presence::kYes,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSoftmax);
          h.normalize_experts = false;
        },
    .tiny = {.layers = 3,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

// The text part of DeepSeek OCR: the same with the weights of experts normalized if its file says so.
const Family kDeepseek2OcrFamily = {
    .architecture = "deepseek2-ocr",
    .models = "DeepSeek OCR",
    .limits = "images",
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_experts(keys, h, Routing::kSoftmax); },
    .tiny = {.kv_heads = 8,
             .layers = 3,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 512,
             .leading_dense = 1,
             .keys = {{"expert_shared_count", ExtraKey::Type::kInteger, 1}}},
};

}  // namespace palimpsest
