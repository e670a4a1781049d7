// Plain decoders: RMS norms before both parts of a layer, gated SiLU. They differ in their rotary pairs and in a few
// traits.
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

#include <cmath>

namespace palimpsest {

namespace {

Family plain_decoder(std::string_view architecture, std::string_view models, RopeKind rope, bool tied = true) {
  Family out = {.architecture = architecture, .models = models, .rope = rope};
  out.tiny.tied = tied;
  if (!tied) out.output = Presence::kYes;
  return out;
}

// The file says which factor it has; older files mean these.
void read_minicpm(const ArchMetadata& keys, Hyperparameters& h) {
  h.embedding_scale = static_cast<float>(keys.number("embedding_scale", 12, 1e-6, 1e6));
  h.residual_scale =
      static_cast<float>(keys.number("residual_scale", 1.4 / std::sqrt(static_cast<double>(h.layers)), 1e-6, 1e6));
  h.logit_scale = static_cast<float>(1 / keys.number("logit_scale", 256.0 / h.width, 1e-6, 1e6));
}

// Baichuan 13B has ALiBi; its files do not say so.
void read_baichuan(const ArchMetadata& keys, Hyperparameters& h) {
  constexpr int kLayersOf13B = 40;
  static_cast<void>(keys);
  if (h.layers != kLayersOf13B) return;
  h.alibi = alibi_slopes(h.geometry.layer(0).query_heads, 8);
  h.rope.kind = RopeKind::kNone;
  h.rope.dims = 0;
}

}  // namespace

const Family kXverseFamily = plain_decoder("xverse", "XVERSE", RopeKind::kPairs, false);

const Family kInternLm2Family = plain_decoder("internlm2", "InternLM 2 and 2.5", RopeKind::kPairs, false);

const Family kExaoneFamily = plain_decoder("exaone", "EXAONE 3 and 3.5", RopeKind::kHalves);

const Family kMiniCpmFamily = [] {
  Family out = plain_decoder("minicpm", "MiniCPM 1 and 2", RopeKind::kPairs);
  out.read = read_minicpm;
  out.tiny.keys = {{"embedding_scale", ExtraKey::Type::kNumber, 12},
                   {"residual_scale", ExtraKey::Type::kNumber, 0.22},
                   {"logit_scale", ExtraKey::Type::kNumber, 8}};
  return out;
}();

// libllama tells the models apart by their layers.
const Family kBaichuanFamily = [] {
  Family out = plain_decoder("baichuan", "Baichuan 1 and 2", RopeKind::kPairs, false);
  out.read = read_baichuan;
  out.tiny.layers = 32;
  out.tiny.width = 64;
  out.tiny.query_heads = out.tiny.kv_heads = 2;
  return out;
}();

const Family kOrionFamily = [] {
  Family out = plain_decoder("orion", "Orion 14B", RopeKind::kHalves, false);
  out.norm = Norm::kLayer;
  out.norm_bias = Presence::kYes;
  return out;
}();

// Attention and feed-forward in parallel after one norm.
const Family kPlamoFamily = [] {
  Family out = plain_decoder("plamo", "PLaMo 13B", RopeKind::kHalves, false);
  out.parallel = true;
  out.feed_forward_norm = Presence::kNo;
  return out;
}();

// Norms before and after each part of a layer; seven of eight layers may have windows with a rotary base of their own.
const Family kPlamo3Family = [] {
  Family out = plain_decoder("plamo3", "PLaMo 3", RopeKind::kHalves);
  out.post_norms = Presence::kYes;
  out.bare_post_norms = true;
  out.qk_norm = QkNorm::kHead;
  out.packed_qkv = true;
  out.feed_forward = FeedForward::kPackedGate;
  out.read = [](const ArchMetadata& keys, Hyperparameters& h) {
    h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 8));
    if (h.geometry.windowed_layers() == 0) return;
    h.local_rope = h.rope;
    h.local_rope->base = keys.number("rope.freq_base_swa", h.rope.base, 1, 1e15);
  };
  out.tiny.layers = 4;
  out.tiny.keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                   {"attention.sliding_window_pattern", ExtraKey::Type::kInteger, 2},
                   {"rope.freq_base_swa", ExtraKey::Type::kNumber, 1000}};
  return out;
}();

const Family kPanguEmbeddedFamily = [] {
  Family out = plain_decoder("pangu-embedded", "openPangu Embedded", RopeKind::kHalves);
  out.qkv_bias = Presence::kYes;
  out.attention_bias = Presence::kYes;
  return out;
}();

// ALiBi.
const Family kRefactFamily = [] {
  Family out = plain_decoder("refact", "Refact 1.6B", RopeKind::kNone);
  out.read = [](const ArchMetadata&, Hyperparameters& h) {
    h.alibi = alibi_slopes(h.geometry.layer(0).query_heads, 8);
  };
  return out;
}();

// YaRN, and queries that grow with their position. With YaRN's multiplier, rotations have no magnitude of their own.
const Family kMistral3Family = [] {
  Family out = plain_decoder("mistral3", "Mistral 3 and Ministral 3", RopeKind::kPairs);
  out.limits = "images";
  out.yarn_log_multiplier = true;
  out.attention_bias = Presence::kOptional;
  out.feed_forward_bias = Presence::kOptional;
  out.experts = Presence::kOptional;
  out.read = [](const ArchMetadata& keys, Hyperparameters& h) {
    const double multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 0, 1e6);
    if (h.rope.yarn_ext_factor != 0 && multiplier != 0)
      h.rope.yarn_attn_factor /= 1 + 0.1 * multiplier * std::log(h.rope.linear_scale);
    h.query_temperature_slope = static_cast<float>(keys.number("attention.temperature_scale", 0, 0, 1e6));
    h.query_temperature_interval = h.rope.original_context;
    h.query_temperature_offset = 0;
    h.query_temperature_everywhere = true;
  };
  out.tiny.keys = {{"attention.temperature_scale", ExtraKey::Type::kNumber, 0.1},
                   {"rope.scaling.original_context_length", ExtraKey::Type::kInteger, 16}};
  return out;
}();

}  // namespace palimpsest
