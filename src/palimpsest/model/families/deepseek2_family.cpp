#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

void read_latent(const ArchMetadata& keys, Hyperparameters& h) {
  const LayerGeometry& g = h.geometry.layer(0);
  const int rotary = h.rope.dims;
  LatentAttention& a = h.latent;
  a.absorbed = keys.has("attention.key_length_mla");
  a.rank = keys.required("attention.kv_lora_rank", 1 << 16);
  a.query_rank = keys.optional("attention.q_lora_rank", 0, 1 << 16, 0);
  const int key = a.absorbed ? keys.required("attention.key_length_mla", 4096) : g.key_width;
  a.value = a.absorbed ? keys.required("attention.value_length_mla", 4096) : g.value_width;
  a.key = key - rotary;
  if (a.key < 1 || rotary < 2)
    fail("{}: keys of {} dimensions have {} rotary ones: damaged", keys.file().path(), key, rotary);
  if (a.absorbed && (g.kv_heads != 1 || g.key_width != a.rank + rotary || g.value_width != a.rank))
    fail(
        "{}: a latent of {} and {} rotary dimensions want one KV head of {} and {}; the file has {} of {} and {}: "
        "damaged",
        keys.file().path(), a.rank, rotary, a.rank + rotary, a.rank, g.kv_heads, g.key_width, g.value_width);
  if (!a.absorbed && g.kv_heads != g.query_heads)
    fail("{}: {} query heads share {} KV heads, which latent attention does not: damaged", keys.file().path(),
         g.query_heads, g.kv_heads);

  h.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key)));
  // YaRN's magnitude is part of the scale; the file's multiplier is 0.1 times the model's. With one, rotations have
  // none.
  if (h.rope.yarn_ext_factor == 0) return;
  const double multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 0, 1e6) * 10;
  const double log = std::log(h.rope.linear_scale), magnitude = 1 + 0.1 * (multiplier == 0 ? 1 : multiplier) * log;
  if (multiplier != 0) h.rope.yarn_attn_factor /= 1 + 0.1 * log;
  h.attention_scale *= static_cast<float>(magnitude * magnitude);
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

}  // namespace palimpsest
