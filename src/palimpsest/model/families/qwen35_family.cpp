#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_state_heads.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// The last layer of each interval has attention, the others the delta rule.
void read_delta_layers(const ArchMetadata& keys, Hyperparameters& h, bool tiled) {
  const int interval = keys.optional("full_attention_interval", 4);
  std::vector<LayerGeometry> layers;
  for (int i = 0; i < h.layers; ++i) {
    layers.push_back(h.geometry.layer(i));
    if ((i + 1) % interval != 0) layers.back().kv_heads = 0;
  }
  h.geometry = HeadGeometry(std::move(layers));
  if (h.geometry.heads() == 0)
    fail("{}: attention in one of {} layers, but there are {}: damaged", keys.file().path(), interval, h.layers);
  read_state_heads(keys, h, false, tiled);
  const StateHeads& heads = h.states.front().state_heads;
  if (heads && heads.head_dim != heads.state_width)
    fail("{}: keys of {} and values of {} in a delta rule; they must be equal", keys.file().path(), heads.state_width,
         heads.head_dim);
}

void read_shared_experts(const ArchMetadata& keys, Hyperparameters& h) {
  h.shared_feed_forward = keys.required("expert_shared_feed_forward_length");
}

constexpr StateHeads tiny_heads(bool tiled) {
  return {.heads = 8, .head_dim = 32, .groups = 4, .state_width = 32, .tiled = tiled};
}
const ExtraKey kSections = {"rope.dimension_sections", ExtraKey::Type::kSigned, 8};

}  // namespace

// For text, the rotary dimensions of time, height and width have the same position.
const Family kQwen35Family = {
    .architecture = "qwen35",
    .models = "Qwen 3.5 and 3.6, dense",
    .limits = "images, multi-token prediction",
    .feed_forward_norm_name = "post_attention_norm",
    .qk_norm = QkNorm::kHead,
    .gated_attention = true,
    .recurrence = Recurrence::kDelta,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_delta_layers(keys, h, true); },
    .tiny = {.layers = 5,
             .rope_dims = 16,
             .convolution_taps = 4,
             .state_heads = tiny_heads(true),
             .attention_interval = 2,
             .keys = {kSections}},
};

const Family kQwen35MoeFamily = {
    .architecture = "qwen35moe",
    .models = "Qwen 3.5 and 3.6, mixtures of experts",
    .limits = "images, multi-token prediction",
    .feed_forward_norm_name = "post_attention_norm",
    .qk_norm = QkNorm::kHead,
    .gated_attention = true,
    .experts = Presence::kYes,
    .gated_shared_experts = true,
    .recurrence = Recurrence::kDelta,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_delta_layers(keys, h, true);
          read_shared_experts(keys, h);
        },
    .tiny = {.layers = 3,
             .rope_dims = 16,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 128,
             .convolution_taps = 4,
             .state_heads = tiny_heads(true),
             .attention_interval = 2,
             .keys = {kSections}},
};

const Family kQwen3NextFamily = {
    .architecture = "qwen3next",
    .models = "Qwen 3 Next, Qwen 3 Coder Next",
    .feed_forward_norm_name = "post_attention_norm",
    .qk_norm = QkNorm::kHead,
    .gated_attention = true,
    .experts = Presence::kYes,
    .gated_shared_experts = true,
    .recurrence = Recurrence::kDelta,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_delta_layers(keys, h, false);
          h.delta_in_one = keys.file().find("blk.0.ssm_in.weight") != nullptr;  // files of 2025
          read_shared_experts(keys, h);
        },
    .tiny = {.layers = 3,
             .rope_dims = 16,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 128,
             .convolution_taps = 4,
             .state_heads = tiny_heads(false),
             .attention_interval = 2},
};

}  // namespace palimpsest
