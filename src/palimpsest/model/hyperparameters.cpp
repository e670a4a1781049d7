#include "palimpsest/model/hyperparameters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/family.h"

namespace palimpsest {

namespace {

// Reads the divisors of the RoPE frequencies; empty if the file has none.
std::vector<float> read_factors(const GgufFile& file, std::string_view name, int dims) {
  const GgufTensor* factors = file.find(name);
  if (factors == nullptr) return {};
  if (factors->type != GGML_TYPE_F32 || factors->ne[0] != dims / 2 || factors->bytes != 2u * dims)
    fail("{}: tensor {} is {} [{}]; expected f32 [{}]", file.path(), name, ggml_type_name(factors->type),
         factors->ne[0], dims / 2);
  std::vector<float> out(static_cast<std::size_t>(dims / 2));
  std::memcpy(out.data(), factors->data, factors->bytes);
  for (const float f : out)
    if (!(f > 0 && std::isfinite(f))) fail("{}: tensor {} has a factor of {}: damaged", file.path(), name, f);
  return out;
}

RopeOptions read_rope(const GgufFile& file, const ArchMetadata& keys, const Family& family, const Hyperparameters& h,
                      int context) {
  const int width = h.geometry.max_key_width();
  RopeOptions rope;
  rope.kind = family.rope;
  rope.dims = family.rope == RopeKind::kNone ? 0 : keys.optional("rope.dimension_count", width, ArchMetadata::kMax, 0);
  if (rope.dims % 2 != 0 || rope.dims > width)
    fail("{}: rope.dimension_count is {}; it must be even and at most the head dimension {}", file.path(), rope.dims,
         width);
  if (rope.dims == 0) rope.kind = RopeKind::kNone;  // no rotary dimensions: NoPE
  rope.base = keys.number("rope.freq_base", 10000.0, 1.0, 1e15);
  rope.original_context = keys.optional("rope.scaling.original_context_length", h.trained_context, INT32_MAX);
  const double old_style = keys.number("rope.scale_linear", 1.0, 0.0, 1e9);
  double factor = keys.number("rope.scaling.factor", old_style, 0.0, 1e9);
  if (factor == 0) factor = 1;  // some converters write 0 for "none"
  const std::string type = keys.text("rope.scaling.type", "linear");
  if (type == "linear" || type == "longrope") {
    rope.linear_scale = factor;
  } else if (type == "yarn") {
    rope.linear_scale = factor;
    rope.yarn_ext_factor = keys.number("rope.scaling.yarn_ext_factor", 1.0, 0.0, 1e6);
    rope.yarn_beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0, 1e-6, 1e9);
    rope.yarn_beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0, 1e-6, 1e9);
    if (keys.has("rope.scaling.yarn_log_multiplier") && !family.yarn_log_multiplier)
      fail("{}: key {} is not supported; use another model", file.path(),
           keys.name("rope.scaling.yarn_log_multiplier"));
  } else if (type != "none") {
    fail("{}: rope scaling \"{}\" is not supported; linear, yarn and Llama 3's factors are", file.path(), type);
  }
  rope.yarn_attn_factor = keys.number("rope.scaling.attn_factor", 1.0, 1e-6, 1e6) *
                          keys.number("rope.scaling.yarn_attn_factor", 1.0, 1e-6, 1e6);

  rope.factors = read_factors(file, "rope_freqs.weight", rope.dims);
  // Phi 3: one set of factors up to the original context, one for longer contexts.
  const bool is_long = (context > 0 ? context : h.trained_context) > rope.original_context;
  std::vector<float> factors =
      read_factors(file, is_long ? "rope_factors_long.weight" : "rope_factors_short.weight", rope.dims);
  if (!factors.empty()) rope.factors = std::move(factors);
  return rope;
}

// Key and value widths are equal in all layers, but for Hyperparameters::set_window_widths; head counts may differ if
// Family::layers_differ.
HeadGeometry read_geometry(const ArchMetadata& keys, const Family& family, const Hyperparameters& h) {
  const auto query_heads = keys.of_layers("attention.head_count", h.layers, family.layers_differ);
  const auto kv_heads = keys.of_layers("attention.head_count_kv", h.layers, family.layers_differ, query_heads);
  const int max = std::ranges::max(query_heads);
  if (!keys.has("attention.key_length") && (max == 0 || h.width % max != 0))
    fail("{}: a width of {} cannot be shared out over {} heads: damaged", keys.file().path(), h.width, max);
  const int key_width = keys.optional("attention.key_length", max == 0 ? 0 : h.width / max, 4096);
  const int value_width = keys.optional("attention.value_length", key_width, 4096);
  std::vector<LayerGeometry> layers;
  for (std::size_t i = 0; i < query_heads.size(); ++i)
    layers.push_back(
        {.kv_heads = kv_heads[i], .query_heads = query_heads[i], .key_width = key_width, .value_width = value_width});
  try {
    HeadGeometry geometry(std::move(layers));
    if (geometry.heads() == 0) fail("no layer has attention");
    return geometry;
  } catch (const Error& e) {
    fail("{}: {}", keys.file().path(), e.what());
  }
}

void read_feed_forward(const ArchMetadata& keys, const Family& family, Hyperparameters& h) {
  h.experts = keys.optional("expert_count", 0, 4096, 0);
  if (h.experts > 0 && family.experts == Presence::kNo)
    fail("{}: is a mixture of experts, which is not supported for {}; use a dense model", keys.file().path(),
         family.architecture);
  if (h.experts == 0 && family.experts == Presence::kYes) keys.required("expert_count");
  if (h.experts == 0) {
    h.feed_forward = keys.of_layers("feed_forward_length", h.layers, family.layers_differ);
    return;
  }
  h.experts_used = keys.required("expert_used_count");
  if (h.experts_used > h.experts)
    fail("{}: {} of {} experts are to be used: damaged", keys.file().path(), h.experts_used, h.experts);
  h.feed_forward = keys.of_layers("feed_forward_length", h.layers, family.single_parts,
                                  keys.optional("expert_feed_forward_length", 0));
  h.expert_feed_forward = keys.optional("expert_feed_forward_length", std::ranges::max(h.feed_forward));
  h.routing = family.routing;
  h.normalize_experts = family.routing != Routing::kSoftmaxOfChosen;
  const bool packs = family.feed_forward == FeedForward::kGated && family.expert_bias == Presence::kNo;
  for (int i = 0; packs && !h.gate_up_in_one && i < h.layers; ++i)
    h.gate_up_in_one = keys.file().find(fmt::format("blk.{}.ffn_gate_up_exps.weight", i)) != nullptr;
}

// libllama's numbers: none, mean, cls, last, rank.
Pooling read_pooling(const ArchMetadata& keys) {
  const int type = keys.optional("pooling_type", 1, 4, 0);
  return type == 1 ? Pooling::kMean : type == 3 ? Pooling::kLast : Pooling::kNone;
}

}  // namespace

PositionKind Hyperparameters::positions() const {
  if (learned_positions > 0) return PositionKind::kLearned;
  if (!alibi.empty()) return PositionKind::kAlibi;
  return rope.kind == RopeKind::kNone ? PositionKind::kNone : PositionKind::kRotary;
}

void Hyperparameters::add_recurrent_layers(int taps, const StateHeads& heads, bool all) {
  states.assign(at(layers), {});
  std::size_t offset = 0;
  for (int i = 0; i < layers; ++i) {
    LayerState& state = states[at(i)];
    const LayerGeometry& g = geometry.layer(i);
    if (all || (g.kv_heads == 0 && g.query_heads > 0))
      state = {.channels = heads ? heads.channels() : width, .taps = taps, .state_heads = heads};
    state.offset = offset;
    offset += state.floats();
  }
}

void Hyperparameters::rotate_in_windows(std::span<const std::int32_t> windows) {
  geometry = geometry.with_windows(windows);
  if (geometry.windowed_layers() == 0) return;
  local_rope = rope;
  rope = RopeOptions::unrotated(rope);
}

bool Hyperparameters::share_kv(int own) {
  if (own >= layers) return true;
  std::vector<LayerGeometry> all;
  for (int i = 0; i < layers; ++i) {
    all.push_back(geometry.layer(i));
    kv_layers.push_back(i);
    if (i < own) continue;
    const LayerGeometry& g = geometry.layer(i);
    const auto alike = [&](const LayerGeometry& other) {
      return other.window == g.window && other.query_heads == g.query_heads && other.key_width == g.key_width &&
             other.value_width == g.value_width;
    };
    int source = own - 1;
    while (source >= 0 && !alike(geometry.layer(source))) --source;
    if (source < 0) return false;
    kv_layers.back() = source;
    all.back().kv_heads = 0;
  }
  geometry = HeadGeometry(std::move(all));
  return true;
}

void Hyperparameters::set_window_widths(int key, int value) {
  std::vector<LayerGeometry> all;
  for (int i = 0; i < layers; ++i) {
    all.push_back(geometry.layer(i));
    if (all.back().window != INT32_MAX) all.back().key_width = key, all.back().value_width = value;
  }
  geometry = HeadGeometry(std::move(all));
}

std::vector<float> alibi_slopes(int heads, double max_bias) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h)
    slopes.push_back(static_cast<float>(h < power ? std::exp2(-max_bias * (h + 1) / power)
                                                  : std::exp2(-max_bias / 2 * (2 * (h - power) + 1) / power)));
  return slopes;
}

Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family, int context) {
  const ArchMetadata keys(file, family.architecture);
  Hyperparameters h;
  h.architecture = family.architecture;
  h.name = file.text("general.name").value_or("");
  if (file.integer("split.count").value_or(1) > file.parts())
    fail("{}: is one part of a split model; join the parts with llama-gguf-split --merge", file.path());

  const int blocks = keys.required("block_count", 4096);
  h.predicting_layers = keys.optional("nextn_predict_layers", 0, blocks - 1, 0);
  h.layers = blocks - h.predicting_layers;
  h.width = keys.required("embedding_length");
  h.trained_context = keys.required("context_length", INT32_MAX);
  h.geometry = read_geometry(keys, family, h);
  const char* const epsilon =
      family.norm == Norm::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  if (!keys.has(epsilon)) fail("{}: key {} is missing; convert the model again", file.path(), keys.name(epsilon));
  h.norm_epsilon = static_cast<float>(keys.number(epsilon, 0.0, 0.0, 1.0));
  h.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.geometry.max_key_width())));
  read_feed_forward(keys, family, h);
  h.rope = read_rope(file, keys, family, h, context);
  h.parallel = family.parallel;
  if (family.scaled_embedding) h.embedding_scale = std::sqrt(static_cast<float>(h.width));
  h.pooling = read_pooling(keys);
  if (family.learned_positions == Presence::kYes ||
      (family.learned_positions == Presence::kOptional && file.find("position_embd.weight") != nullptr))
    h.learned_positions = h.trained_context;
  if (family.read != nullptr) family.read(keys, h);

  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail("{}: tensor token_embd.weight is missing; is it a whole model?", file.path());
  const std::int64_t rows = embedding->ne[1];
  if (rows > ArchMetadata::kMax) fail("{}: tensor token_embd.weight has {} rows: damaged", file.path(), rows);
  h.vocabulary = static_cast<int>(rows);
  const int claimed = keys.optional("vocab_size", h.vocabulary);
  const std::size_t tokens = file.array_size("tokenizer.ggml.tokens");
  if (claimed != h.vocabulary || (tokens != 0 && tokens != static_cast<std::size_t>(h.vocabulary)))
    fail("{}: the embedding has {} rows, vocab_size is {} and the tokenizer has {} tokens: damaged", file.path(),
         h.vocabulary, claimed, tokens);
  return h;
}

}  // namespace palimpsest
