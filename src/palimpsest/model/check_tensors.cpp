#include "palimpsest/model/check_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

bool is_float(ggml_type type) {
  return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

// Whether weights can have this type; the others are integers and formats of activations.
bool is_weight_type(ggml_type type) {
  return is_float(type) || (ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K);
}

std::string shape_text(const std::int64_t* ne) {
  std::string out = "[" + std::to_string(ne[0]);
  int last = GGML_MAX_DIMS - 1;
  while (last > 0 && ne[last] == 1) --last;
  for (int d = 1; d <= last; ++d) out += ", " + std::to_string(ne[d]);
  return out + "]";
}

std::string wanted(const TensorSpec& spec) {
  const std::int64_t ne[GGML_MAX_DIMS] = {spec.ne[0], spec.ne[1], spec.ne[2], 1};
  return shape_text(ne);
}

// Finds a tensor and checks its shape and type; nullptr: an optional tensor that is absent.
const GgufTensor* find_tensor(const GgufFile& file, const TensorSpec& spec) {
  const GgufTensor* t = spec.presence == Presence::kNo ? nullptr : file.find(spec.name);
  if (t == nullptr) {
    if (spec.presence == Presence::kYes)
      fail("{}: tensor {} {} is missing; is it a whole model? fetch or convert it again", file.path(), spec.name,
           wanted(spec));
    return nullptr;
  }
  if (!std::equal(spec.ne.begin(), spec.ne.end(), t->ne.begin()) || t->ne[3] != 1)
    fail("{}: tensor {} has shape {}; the metadata want {}: damaged, or metadata of another model", file.path(),
         spec.name, shape_text(t->ne.data()), wanted(spec));
  if (!is_weight_type(t->type))
    fail("{}: tensor {} is of type {}, which is no type of weights: damaged", file.path(), spec.name,
         ggml_type_name(t->type));
  if (spec.kind == TensorSpec::Kind::kNumbers && t->type != GGML_TYPE_F32)
    fail("{}: tensor {} is of type {}; expected f32: convert the model again", file.path(), spec.name,
         ggml_type_name(t->type));
  if (spec.kind == TensorSpec::Kind::kVector && !is_float(t->type))
    fail("{}: tensor {} is of type {}; expected f32, f16 or bf16: convert the model again", file.path(), spec.name,
         ggml_type_name(t->type));
  return t;
}

// Tensors that the graph does not use: RoPE factors, read with the hyperparameters, and RoPE frequencies written by old
// converters, which follow from the metadata.
bool is_unused(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight" ||
         name.ends_with(".attn_rot_embd") || name.ends_with(".attn_rot_embd.weight");
}

// Whether a tensor is of a layer of multi-token prediction.
bool predicts(std::string_view name, const Hyperparameters& h) {
  for (int i = h.layers; i < h.layers + h.predicting_layers; ++i)
    if (name.starts_with(fmt::format("blk.{}.", i))) return true;
  return false;
}

}  // namespace

std::vector<TensorUse> check_tensors(Weights& w, const Family& family, const Hyperparameters& h) {
  const int first = h.geometry.layer_of(0);  // the first layer with KV heads
  const bool packed = w.file.find("blk." + std::to_string(first) + ".attn_qkv.weight") != nullptr;
  std::vector<TensorUse> uses;
  std::set<std::string_view> seen;
  for (const TensorSpec& spec : tensors_of(family, h, packed, w)) {
    const GgufTensor* t = find_tensor(w.file, spec);
    if (t == nullptr) continue;
    seen.insert(t->name);
    if (spec.kind == TensorSpec::Kind::kNumbers || spec.kind == TensorSpec::Kind::kUnused) continue;
    if (spec.kind != TensorSpec::Kind::kHostRows)
      uses.push_back({t, spec.target, spec.kind});
    else
      (spec.name == "token_embd.weight"      ? w.embedding
       : spec.name == "position_embd.weight" ? w.positions
                                             : w.per_layer_embedding) = t;
  }
  if (!seen.contains("output.weight")) uses.push_back({w.embedding, &w.output, TensorSpec::Kind::kMatrix});
  // An unused tensor means that the model computes something that this graph does not.
  for (const GgufTensor& t : w.file.tensors())
    if (!seen.contains(t.name) && !is_unused(t.name) && !predicts(t.name, h))
      fail("{}: tensor \"{}\" is not part of a {} model as supported here; use another model", w.file.path(),
           printable(t.name), family.architecture);
  return uses;
}

std::vector<std::vector<float>> read_sink_logits(const GgufFile& file, const Hyperparameters& h) {
  std::vector<std::vector<float>> out(static_cast<std::size_t>(h.layers));
  for (int i = 0; i < h.layers; ++i) {
    const GgufTensor* t = file.find("blk." + std::to_string(i) + ".attn_sinks.weight");
    if (t == nullptr) continue;
    std::vector<float>& logits = out[static_cast<std::size_t>(i)];
    logits.resize(static_cast<std::size_t>(t->ne[0]));
    std::memcpy(logits.data(), t->data, t->bytes);
    for (const float x : logits)
      if (!std::isfinite(x)) fail("{}: tensor {} has a value of {}: damaged", file.path(), t->name, x);
  }
  if (std::ranges::all_of(out, [](const auto& each) { return each.empty(); })) out.clear();
  return out;
}

// The products of the weights of Q's and K's norms.
std::vector<std::vector<float>> read_query_factors(const GgufFile& file, const Hyperparameters& h) {
  std::vector<std::vector<float>> out(static_cast<std::size_t>(h.layers));
  for (int i = 0; i < h.layers; ++i) {
    std::vector<float> weights[2];
    for (int which = 0; which < 2; ++which) {
      const GgufTensor* t = file.find(fmt::format("blk.{}.attn_{}_norm.weight", i, which == 0 ? "q" : "k"));
      weights[which].resize(static_cast<std::size_t>(t->ne[0]));
      std::memcpy(weights[which].data(), t->data, t->bytes);
    }
    for (std::size_t d = 0; d < weights[0].size(); ++d) {
      out[static_cast<std::size_t>(i)].push_back(weights[0][d] * weights[1][d]);
      if (!std::isfinite(out[static_cast<std::size_t>(i)].back()))
        fail("{}: tensors attn_q_norm and attn_k_norm of layer {} have a product of {}: damaged", file.path(), i,
             out[static_cast<std::size_t>(i)].back());
    }
  }
  return out;
}

}  // namespace palimpsest
