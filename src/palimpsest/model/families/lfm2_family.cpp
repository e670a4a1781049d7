#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

void read_convolutions(const ArchMetadata& keys, Hyperparameters& h) {
  const int taps = keys.required("shortconv.l_cache", kMaxTaps);
  if (taps < 2) fail("{}: short convolutions of {} tap: damaged", keys.file().path(), taps);
  if (keys.optional("attention.sliding_window", 0, INT32_MAX, 0) > 0)
    fail("{}: LFM2 with attention windows is not supported; use another model", keys.file().path());
  h.add_recurrent_layers(taps);
}

}  // namespace

const Family kLfm2Family = {
    .architecture = "lfm2",
    .models = "LFM2, dense",
    .limits = "images, audio",
    .output_norm_name = "token_embd_norm",
    .qk_norm = QkNorm::kHead,
    .layers_differ = true,
    .recurrence = Recurrence::kConvolution,
    .read = read_convolutions,
    .tiny = {.layers = 4, .convolution_taps = 3, .kv_heads_of = {0, 4, 0, 4}},
};

const Family kLfm2MoeFamily = {
    .architecture = "lfm2moe",
    .models = "LFM2, mixtures of experts",
    .output_norm_name = "token_embd_norm",
    .qk_norm = QkNorm::kHead,
    .experts = Presence::kYes,
    .routing = Routing::kSigmoid,
    .selection_bias = Presence::kYes,
    .layers_differ = true,
    .recurrence = Recurrence::kConvolution,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_convolutions(keys, h);
          h.leading_dense = keys.optional("leading_dense_block_count", 0, ArchMetadata::kMax, 0);
          if (const int function = keys.optional("expert_gating_func", 2, ArchMetadata::kMax); function != 2)
            fail("{}: router function {} is not supported; use another model", keys.file().path(), function);
        },
    .tiny = {.layers = 3,
             .experts = 8,
             .experts_used = 2,
             .leading_dense = 1,
             .convolution_taps = 3,
             .kv_heads_of = {0, 4, 0},
             .keys = {{"expert_gating_func", ExtraKey::Type::kInteger, 2}}},
};

}  // namespace palimpsest
