#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/families/read_state_heads.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// A layer with a feed-forward has no attention.
void read_single_parts(const ArchMetadata& keys, Hyperparameters& h) {
  std::vector<LayerGeometry> layers;
  for (int i = 0; i < h.layers; ++i) {
    layers.push_back(h.geometry.layer(i));
    if (h.feed_forward[at(i)] > 0) layers.back().kv_heads = layers.back().query_heads = 0;
  }
  h.geometry = HeadGeometry(std::move(layers));
  if (h.geometry.heads() == 0) fail("{}: no layer has attention: damaged", keys.file().path());
  read_state_heads(keys, h, false);
}

constexpr StateHeads kTinyMamba = {.heads = 8, .head_dim = 64, .groups = 2, .state_width = 32};
const ExtraKey kEpsilon = {"attention.layer_norm_epsilon", ExtraKey::Type::kNumber, 1e-5};  // libllama asks for both

}  // namespace

// The activation is the square of a ReLU.
const Family kNemotronFamily = {
    .architecture = "nemotron",
    .models = "Nemotron 3 and 4, Minitron",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
    .feed_forward_bias = Presence::kOptional,
    .output = Presence::kYes,
    .tiny = {.rope_dims = 16, .tied = false},
};

// Layers are Mamba-2, attention without positions, or feed-forward.
const Family kNemotronHFamily = {
    .architecture = "nemotron_h",
    .models = "Nemotron H, Nemotron Nano 2",
    .rope = RopeKind::kNone,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
    .feed_forward_bias = Presence::kOptional,
    .layers_differ = true,
    .single_parts = true,
    .recurrence = Recurrence::kMamba2,
    .read = read_single_parts,
    .tiny = {.layers = 4,
             .convolution_taps = 4,
             .state_heads = kTinyMamba,
             .kv_heads_of = {0, 0, 4, 0},
             .feed_forward_of = {0, 512, 0, 512},
             .keys = {kEpsilon}},
};

const Family kNemotronHMoeFamily = {
    .architecture = "nemotron_h_moe",
    .models = "Nemotron 3 Nano and Super",
    .rope = RopeKind::kNone,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
    .experts = Presence::kYes,
    .selection_bias = Presence::kYes,
    .layers_differ = true,
    .single_parts = true,
    .recurrence = Recurrence::kMamba2,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          h.shared_feed_forward = keys.required("expert_shared_feed_forward_length");
          h.expert_latent = keys.optional("moe_latent_size", 0, ArchMetadata::kMax, 0);
          read_single_parts(keys, h);
        },
    .tiny = {.layers = 4,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 128,
             .convolution_taps = 4,
             .state_heads = kTinyMamba,
             .kv_heads_of = {0, 0, 4, 0},
             .feed_forward_of = {0, 512, 0, 512},
             .keys = {kEpsilon,
                      {"expert_weights_norm", ExtraKey::Type::kFlag, 1},
                      {"expert_shared_count", ExtraKey::Type::kInteger, 1},
                      {"expert_weights_scale", ExtraKey::Type::kNumber, 2.5}}},
};

}  // namespace palimpsest
