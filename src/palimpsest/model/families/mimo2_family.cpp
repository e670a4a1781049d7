#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Layers with windows have sink logits, other KV heads and their own rotary base. The first layers are dense.
const Family kMimo2Family = {
    .architecture = "mimo2",
    .models = "MiMo V2 Flash",
    .limits = "multi-token prediction",
    .packed_qkv = true,
    .sink_logits = Presence::kOptional,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .layers_differ = true,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSigmoid);
          h.normalize_experts = true;
          read_dense_layers_and_windows(keys, h);
          h.attention_output_scale = static_cast<float>(keys.number("attention.value_scale", 1, 1e-6, 1e6));
        },
    .tiny = {.layers = 4,
             .rope_dims = 16,
             .tied = false,
             .value_dim = 16,
             .experts = 8,
             .experts_used = 2,
             .leading_dense = 1,
             .kv_heads_of = {2, 4, 2, 4},
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"attention.sliding_window_pattern", ExtraKey::Type::kPattern, 2},
                      {"rope.freq_base_swa", ExtraKey::Type::kNumber, 1000},
                      {"attention.value_scale", ExtraKey::Type::kNumber, 0.7}}},
};

}  // namespace palimpsest
