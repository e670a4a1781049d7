#include <limits>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// Files mark pairs that do not rotate by a divisor of 1e30: their angles are 0.
constexpr float kUnrotated = 1e20F;

void read_gemma4_rope(const ArchMetadata& keys, Hyperparameters& h, int window_width) {
  h.local_rope = h.rope;
  h.local_rope->factors.clear();
  h.local_rope->base = keys.number("rope.freq_base_swa", h.rope.base, 1, 1e15);
  h.local_rope->dims = keys.optional("rope.dimension_count_swa", h.rope.dims);
  if (h.local_rope->dims % 2 != 0 || h.local_rope->dims > window_width)
    fail("{}: {} is {}; it must be even and at most the width of these heads, {}", keys.file().path(),
         keys.name("rope.dimension_count_swa"), h.local_rope->dims, window_width);
  for (float& factor : h.rope.factors)
    if (factor > kUnrotated) factor = std::numeric_limits<float>::infinity();
}

void read_gemma4(const ArchMetadata& keys, Hyperparameters& h) {
  const std::string& path = keys.file().path();
  const int width = h.geometry.max_key_width(), window_width = keys.required("attention.key_length_swa", 4096);
  if (h.geometry.max_value_width() != width || keys.required("attention.value_length_swa", 4096) != window_width)
    fail("{}: keys and values of a layer differ in width, which is not supported for gemma4: damaged", path);
  keys.required("attention.sliding_window", INT32_MAX);
  h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 6));
  h.set_window_widths(window_width, window_width);
  read_gemma4_rope(keys, h, window_width);
  h.output_soft_cap = static_cast<float>(keys.number("final_logit_softcapping", 30, 0, 1e6));
  h.attention_scale = 1;
  h.per_layer = keys.optional("embedding_length_per_layer_input", 0, 1 << 16, 0);
  if (h.experts > 0) h.shared_feed_forward = h.feed_forward.front();
  const int shared = keys.optional("attention.shared_kv_layers", 0, h.layers - 1, 0);
  if (!h.share_kv(h.layers - shared))
    fail("{}: {} of {} layers read the cache of an earlier layer, and none has the same window and heads: damaged",
         path, shared, h.layers);
}

}  // namespace

// Layers without windows, one of five or six, have wider and fewer heads than the others, rotate a part of the pairs,
// and in the larger models their values are their keys, before norm and rotation. The small models (E2B, E4B) read an
// embedding in each layer, and their last layers read the cache of an earlier one; 26B A4B has a mixture of experts
// beside its feed-forward.
const Family kGemma4Family = {
    .architecture = "gemma4",
    .models = "Gemma 4 E2B, E4B, 31B and 26B A4B",
    .limits = "images, audio; of E2B and E4B: drafts, layer by layer",
    .post_norms = Presence::kYes,
    .qk_norm = QkNorm::kHead,
    .value_weights = Presence::kOptional,
    .value_norm = true,
    .activation = Activation::kGelu,
    .experts = Presence::kOptional,
    .shared_experts_end = "",
    .normed_experts = true,
    .expert_scales = Presence::kOptional,
    .layers_differ = true,
    .layer_scale = Presence::kOptional,
    .scaled_embedding = true,
    .read = read_gemma4,
    .tiny = {.query_heads = 4,
             .kv_heads = 1,
             .head_dim = 64,
             .layers = 6,
             .width = 128,
             .kv_heads_of = {2, 2, 1, 2, 2, 1},
             .window_head_dim = 32,
             .window_period = 3,
             .own_kv_layers = 3,
             .per_layer = 32,
             .rope_share = 0.25,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"rope.freq_base", ExtraKey::Type::kNumber, 1000000},
                      {"rope.freq_base_swa", ExtraKey::Type::kNumber, 10000}}},
};

}  // namespace palimpsest
