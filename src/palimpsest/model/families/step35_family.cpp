#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// One number for all layers, or one per layer, of which the file may have more (multi-token prediction).
std::vector<float> step35_limits(const ArchMetadata& keys, const char* key, int layers) {
  const std::string name = keys.name(key);
  if (!keys.has(key)) return {};
  if (!keys.file().is_array(name))
    return std::vector<float>(static_cast<std::size_t>(layers), static_cast<float>(keys.number(key, 0, 0, 1e6)));
  const auto numbers = keys.file().numbers(name);
  if (!numbers || numbers->size() < static_cast<std::size_t>(layers))
    fail("{}: key {} does not have a number for each of {} layers: damaged", keys.file().path(), name, layers);
  std::vector<float> out(numbers->begin(), numbers->begin() + layers);
  for (const float limit : out)
    if (!(limit >= 0)) fail("{}: key {} has a limit of {}: damaged", keys.file().path(), name, limit);
  return out;
}

void read_step35(const ArchMetadata& keys, Hyperparameters& h) {
  read_experts(keys, h, Routing::kSigmoid);
  h.shared_feed_forward = keys.required("expert_shared_feed_forward_length");
  read_dense_layers_and_windows(keys, h);
  h.local_rope->factors.clear();
  if (h.rope.dims % 4 != 0)
    fail("{}: {} is {}, of which layers without windows rotate a half; it must be divisible by 4", keys.file().path(),
         keys.name("rope.dimension_count"), h.rope.dims);
  h.rope.dims /= 2;
  if (!h.rope.factors.empty()) h.rope.factors.resize(static_cast<std::size_t>(h.rope.dims / 2));
  h.expert_limits = step35_limits(keys, "swiglu_clamp_exp", h.layers);
  h.gate_limits = step35_limits(keys, "swiglu_clamp_shexp", h.layers);
}

}  // namespace

// Layers without windows have other heads, another rotary base and rotate half of the pairs. The first layers are
// dense; in the last ones what experts multiply is limited.
const Family kStep35Family = {
    .architecture = "step35",
    .models = "Step 3.5 Flash",
    .limits = "multi-token prediction",
    .qk_norm = QkNorm::kHead,
    .head_gates = true,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .layers_differ = true,
    .output = Presence::kYes,
    .read = read_step35,
    .tiny = {.layers = 4,
             .tied = false,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 256,
             .leading_dense = 1,
             .query_heads_of = {8, 4, 8, 4},
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"attention.sliding_window_pattern", ExtraKey::Type::kPattern, 2},
                      {"rope.freq_base_swa", ExtraKey::Type::kNumber, 1000},
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 3},
                      {"swiglu_clamp_exp", ExtraKey::Type::kNumber, 0.3},
                      {"swiglu_clamp_shexp", ExtraKey::Type::kNumber, 0.2}}},
};

}  // namespace palimpsest
