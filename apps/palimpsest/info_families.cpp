#include "palimpsest/info_families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/model/encoder_file.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/model.h"

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

bool chunked(const Hyperparameters& h) {
  for (int i = 0; i < h.layers; ++i)
    if (h.geometry.layer(i).chunked) return true;
  return false;
}

// Special features of a family, as short phrases.
std::string features_of(const Family& f) {
  std::vector<std::string> out;
  const Hyperparameters h = Model::synthetic("tiny-" + std::string(f.architecture))->hyper();
  switch (h.positions()) {
    case PositionKind::kRotary:
      out.push_back(fmt::format("rotary by {}", f.rope == RopeKind::kPairs ? "pairs" : "halves"));
      if (h.rope.dims < h.geometry.max_key_width()) out.back() += " on part of a head";
      break;
    case PositionKind::kAlibi:
      out.push_back("ALiBi");
      break;
    case PositionKind::kLearned:
      out.push_back("learned positions");
      break;
    case PositionKind::kNone:
      break;
  }
  if (h.rope.is_unrotated() || (h.local_rope && h.local_rope->is_unrotated()))
    out.push_back("some layers without positions");
  else if (h.local_rope && h.local_rope->base != h.rope.base)
    out.push_back("two rotary bases");
  if (f.recurrence == Recurrence::kConvolution) out.push_back("short convolutions beside attention");
  if (f.recurrence == Recurrence::kMamba2)
    out.push_back(f.recurrent_beside_attention ? "Mamba-2 and attention in each layer" : "Mamba-2 beside attention");
  if (h.latent) out.push_back("latent attention");
  if (!h.sink_logits.empty()) out.push_back("sink logits");
  if (h.geometry.windowed_layers() > 0) out.push_back(chunked(h) ? "chunked attention" : "attention windows");
  if (f.recurrence == Recurrence::kDelta) out.push_back("gated delta rule beside attention");
  if (f.gated_attention || f.attention_gate || f.head_gates) out.push_back("gated attention");
  if (f.layers_differ && f.recurrence == Recurrence::kNone) out.push_back("different heads per layer");
  if (!h.geometry.one_width()) out.push_back("heads of several widths");
  if (h.attention_soft_cap > 0) out.push_back("soft caps");
  if (!h.kv_layers.empty()) out.push_back("layers that share a cache");
  if (h.alt_up) out.push_back("AltUp");
  if (h.per_layer > 0) out.push_back("embeddings of layers");
  if (h.parallel) out.push_back("parallel residual");
  if (f.norm == Norm::kLayer) out.push_back("LayerNorm");
  if (f.norm == Norm::kBareLayer) out.push_back("LayerNorm without weights");
  if (f.sub_norms != Presence::kNo) out.push_back("norms before the last products");
  if (f.activation == Activation::kXielu) out.push_back("xIELU");
  if (f.post_norms != Presence::kNo) out.push_back("norms after");
  if (f.qk_norm != QkNorm::kNone)
    out.push_back(f.qk_norm == QkNorm::kAfterRotation ? "norms of Q and K after the rotation" : "norms of Q and K");
  if (f.experts != Presence::kNo) out.push_back("mixtures of experts");
  if (!h.gate_limits.empty()) out.push_back("limited gates");
  if (h.adjugate_group > 0) out.push_back("adjugate experts of groups");
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

int list_families(bool json) {
  Json out = Json::array();
  for (const Family* f : families()) {
    out.push_back({{"architecture", f->architecture},
                   {"models", f->models},
                   {"features", features_of(*f)},
                   {"checked_against", f->in_libllama ? "libllama" : "its formulas in double precision"},
                   {"limits", f->limits}});
    if (json) continue;
    fmt::print("{:10} {:52} {}", f->architecture, f->models, features_of(*f));
    fmt::print("{}{}\n", f->limits.empty() ? "" : "; not: ", f->limits);
  }
  const std::vector<std::string_view> encoders(encoder_architectures().begin(), encoder_architectures().end());
  Json refused = Json::array();
  for (const RefusedArchitecture& each : refused_architectures())
    refused.push_back({{"architecture", each.architecture}, {"why", each.why}});
  if (json)
    fmt::print("{}\n", Json{{"families", out}, {"encoders", encoders}, {"refused", refused}}.dump(2));
  else
    fmt::print("encoders, for serve: {}\n", fmt::join(encoders, ", "));
  return kOk;
}

}  // namespace palimpsest::cli
