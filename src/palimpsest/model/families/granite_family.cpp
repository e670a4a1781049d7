#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_state_heads.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// Factors of the embedding, of what each part of a layer adds, of scores, and a divisor of logits.
void read_multipliers(const ArchMetadata& keys, Hyperparameters& h) {
  const auto factor = [&](const char* key, double fallback) {
    const double value = keys.number(key, 0, 0, 1e6);
    return static_cast<float>(value == 0 ? fallback : value);  // 0: none
  };
  h.embedding_scale = factor("embedding_scale", 1);
  h.residual_scale = factor("residual_scale", 1);
  h.attention_scale = factor("attention.scale", h.attention_scale);
  h.logit_scale = 1 / factor("logit_scale", 1);
  if (!keys.flag("rope.scaling.finetuned", true)) h.rope.kind = RopeKind::kNone, h.rope.dims = 0;
  if (h.experts > 0) h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", 0, keys.kMax, 0);
}

const std::vector<ExtraKey> kTinyKeys = {{"embedding_scale", ExtraKey::Type::kNumber, 12},
                                         {"residual_scale", ExtraKey::Type::kNumber, 0.22},
                                         {"attention.scale", ExtraKey::Type::kNumber, 0.125},
                                         {"logit_scale", ExtraKey::Type::kNumber, 8}};

}  // namespace

const Family kGraniteFamily = {
    .architecture = "granite",
    .models = "Granite 3 and 4, dense",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward_bias = Presence::kOptional,
    .read = read_multipliers,
    .tiny = {.keys = kTinyKeys},
};

// Mamba-2 beside attention; the published ones have no positions.
const Family kGraniteHybridFamily = {
    .architecture = "granitehybrid",
    .models = "Granite 4 H, dense and mixtures of experts",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward_bias = Presence::kOptional,
    .experts = Presence::kOptional,
    .layers_differ = true,
    .recurrence = Recurrence::kMamba2,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_multipliers(keys, h);
          read_state_heads(keys, h, false);
        },
    .tiny = {.layers = 3,
             .convolution_taps = 4,
             .state_heads = {.heads = 8, .head_dim = 64, .groups = 2, .state_width = 32},
             .kv_heads_of = {0, 4, 0},
             .keys = kTinyKeys},
};

const Family kGraniteMoeFamily = {
    .architecture = "granitemoe",
    .models = "Granite 3, mixtures of experts",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .experts = Presence::kYes,
    .read = read_multipliers,
    .tiny = {.experts = 8, .experts_used = 2, .shared_feed_forward = 128, .keys = kTinyKeys},
};

}  // namespace palimpsest
