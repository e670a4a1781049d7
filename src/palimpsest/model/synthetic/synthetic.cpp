#include "palimpsest/model/synthetic/synthetic.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <numbers>
#include <vector>

#include <ggml-cpp.h>

#include "palimpsest/core/error.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/tensors.h"

namespace palimpsest {

namespace {

constexpr int kFirstPiece = 3 + 256;                  // <unk> <s> </s>, one token per byte, then pieces
constexpr std::int64_t kMaxUniqueElements = 1 << 20;  // a larger matrix repeats rows of a pool
constexpr int kPoolRows = 512;

// xorshift64*; normal numbers as the sum of four uniform ones: fast, and the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) { next(); }
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  float normal() {
    const std::uint64_t bits = next();
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xFFFF);
    return (static_cast<float>(sum) - 131070.0F) / 37837.0F;  // variance of the sum: 4 * 65536^2 / 12
  }

 private:
  std::uint64_t state_;
};

struct Tensor {
  std::string name;
  std::array<std::int64_t, 3> ne;
  ggml_type type;
  float mean, deviation;

  std::int64_t rows() const { return ne[1] * ne[2]; }
};

bool has_window(const SyntheticShape& s, int layer) {
  return s.window_period > 0 && (layer + 1) % s.window_period != 0;
}

// Layers beyond the end of `list` (@layers=N) use its last entry; `all` if it is empty.
int of_layer(const std::vector<int>& list, int layer, int all) {
  return list.empty() ? all : list[std::min(static_cast<std::size_t>(layer), list.size() - 1)];
}

Hyperparameters hyperparameters_of(const SyntheticShape& s, const Family& family) {
  Hyperparameters h;
  h.vocabulary = s.vocabulary;
  h.width = s.width;
  h.layers = s.layers;
  std::vector<LayerGeometry> layers;
  for (int i = 0; i < s.layers; ++i) {
    h.feed_forward.push_back(of_layer(s.feed_forward_of, i, s.feed_forward));
    const bool attends = s.attention_interval == 0 || (i + 1) % s.attention_interval == 0;
    const bool feeds = family.single_parts && h.feed_forward.back() > 0;
    const int head_dim = has_window(s, i) ? s.window_head_dim : s.head_dim;
    layers.push_back({.kv_heads = attends && !feeds ? of_layer(s.kv_heads_of, i, s.kv_heads) : 0,
                      .query_heads = feeds ? 0 : of_layer(s.query_heads_of, i, s.query_heads),
                      .key_width = head_dim,
                      .value_width = s.value_dim > 0 ? s.value_dim : head_dim});
  }
  h.geometry = HeadGeometry(std::move(layers));
  if (s.convolution_taps > 0)
    h.add_recurrent_layers(s.convolution_taps, s.state_heads, family.recurrent_beside_attention);
  h.learned_positions = family.learned_positions == Presence::kYes ? s.context : 0;
  h.experts = s.experts;
  h.experts_used = s.experts_used;
  h.shared_feed_forward = family.normed_experts ? s.feed_forward : s.shared_feed_forward;
  h.leading_dense = s.leading_dense;
  h.expert_interval = s.expert_interval;
  h.expert_latent = s.expert_latent;
  h.adjugate_group = s.adjugate_group;
  h.adjugate_feed_forward = s.adjugate_feed_forward;
  h.delta_in_one = s.delta_in_one;
  h.second_norm = s.second_norm;
  if (family.alt_up) h.alt_up = gemma3n_alt_up();
  h.per_layer = family.alt_up ? kGemma3nPerLayer : s.per_layer;
  h.gate_up_in_one = s.gate_up_in_one;
  if (const int own = family.own_kv_layers + s.own_kv_layers; own > 0) h.share_kv(own);
  h.latent = s.latent;
  h.rope.dims = s.rope_dims < 0 ? s.head_dim : s.rope_dims;
  h.expert_feed_forward = s.expert_feed_forward > 0 ? s.expert_feed_forward : s.feed_forward;
  return h;
}

bool wanted(const TensorSpec& spec, const SyntheticShape& s) {
  if (spec.name == "output.weight" && spec.presence == Presence::kOptional) return !s.tied;
  const bool omitted = std::any_of(s.omit.begin(), s.omit.end(),
                                   [&](const std::string& part) { return spec.name.find(part) != std::string::npos; });
  return spec.presence == Presence::kYes || (spec.presence == Presence::kOptional && s.optional_tensors && !omitted);
}

std::vector<Tensor> tensors_of(const SyntheticShape& s) {
  const Family& family = find_family(s.architecture);
  std::vector<Tensor> list;
  Weights unused;
  for (const TensorSpec& spec : tensors_of(family, hyperparameters_of(s, family), family.packed_qkv, unused)) {
    if (!wanted(spec, s)) continue;
    const bool small = spec.kind == TensorSpec::Kind::kVector || spec.kind == TensorSpec::Kind::kNumbers,
               router = spec.name.find("ffn_gate_inp") != std::string::npos ||
                        spec.name.find("altup") != std::string::npos || spec.name.find("laurel") != std::string::npos;
    ggml_type type = small || router ? GGML_TYPE_F32 : s.type;
    for (const auto& [part, other] : s.type_of)
      if (spec.name.find(part) != std::string::npos) type = other;
    if (spec.ne[0] % ggml_blck_size(type) != 0)
      fail("synthetic model {}: {} has rows of {}, but {} comes in blocks of {}; choose another @type", s.name,
           spec.name, spec.ne[0], ggml_type_name(type), ggml_blck_size(type));
    const auto named = [&](const char* end) { return spec.name.ends_with(end); };
    const bool taps = named("conv.weight") || named("conv1d.weight");
    // Sharp attention would make a random model chaotic.
    const bool unscaled = family.value_norm && (named("attn_q_norm.weight") || named("attn_k_norm.weight"));
    const float mean = unscaled ? 0.15F
                       : (small && (named("norm.weight") || named("_norm") || named("_scale.weight") ||
                                    named(".scale") || spec.name.find("_ffw_norm_") != std::string::npos)) ||
                               named("ssm_d")
                           ? 1.0F
                       : named("ssm_a") ? -0.5F
                                        : 0.0F;
    list.push_back(
        {spec.name, spec.ne, type, mean, small && !taps ? 0.1F : 1.0F / std::sqrt(static_cast<float>(spec.ne[0]))});
  }
  const auto factors = [&](const char* name) {
    const int dims = s.rope_dims < 0 ? s.head_dim : s.rope_dims;
    list.push_back({name, {dims / 2, 1, 1}, GGML_TYPE_F32, 2.0F, 0.2F});
  };
  if (s.llama3_factors || s.rope_share < 1) factors("rope_freqs.weight");
  if (s.long_factors) factors("rope_factors_long.weight");
  if (s.long_factors) factors("rope_factors_short.weight");
  return list;
}

// Llama 3.1's frequency divisors: 8 for wavelengths longer than the original context, 1 for short ones, smooth between.
void llama3_factors(const SyntheticShape& s, float* out) {
  constexpr double kFactor = 8, kLow = 1, kHigh = 4;
  for (int i = 0; i < s.head_dim / 2; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(s.rope_base, 2.0 * i / s.head_dim);
    const double smooth = (s.original_context / wave - kLow) / (kHigh - kLow);
    out[i] = static_cast<float>(smooth <= 0 ? kFactor : smooth >= 1 ? 1 : 1 / ((1 - smooth) / kFactor + smooth));
  }
}

// 1 for the first pairs, which rotate; the others have angles of 0 (Gemma 4).
void factors_of_share(const SyntheticShape& s, float* out) {
  for (int i = 0; i < s.head_dim / 2; ++i) out[i] = i < s.rope_share * s.head_dim / 2 ? 1.0F : 1e30F;
}

// Metadata, with a vocabulary that llama.cpp accepts: every byte, "▁" and the letters, then filler tokens.
void set_metadata(gguf_context* g, const SyntheticShape& s) {
  const std::string a = s.architecture + ".";
  const auto u32 = [&](const std::string& key, int value) {
    gguf_set_val_u32(g, key.c_str(), static_cast<std::uint32_t>(value));
  };
  const auto f32 = [&](const std::string& key, double value) {
    gguf_set_val_f32(g, key.c_str(), static_cast<float>(value));
  };
  gguf_set_val_str(g, "general.architecture", s.architecture.c_str());
  gguf_set_val_str(g, "general.name", ("synthetic " + s.name).c_str());
  u32(a + "context_length", s.context);
  u32(a + "embedding_length", s.width);
  u32(a + "block_count", s.layers);
  const auto of_layers = [&](const char* key, const std::vector<int>& list, int all) {
    if (list.empty()) return u32(a + key, all);
    std::vector<std::int32_t> values;
    for (int i = 0; i < s.layers; ++i) values.push_back(of_layer(list, i, all));
    gguf_set_arr_data(g, (a + key).c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  };
  of_layers("feed_forward_length", s.feed_forward_of, s.feed_forward);
  of_layers("attention.head_count", s.query_heads_of, s.query_heads);
  of_layers("attention.head_count_kv", s.kv_heads_of, s.kv_heads);
  u32(a + "attention.key_length", s.head_dim);
  u32(a + "attention.value_length", s.value_dim > 0 ? s.value_dim : s.head_dim);
  if (s.window_period > 0) {
    for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
      u32(a + key, s.window_head_dim);
    std::vector<std::int8_t> windows;
    for (int i = 0; i < s.layers; ++i) windows.push_back(has_window(s, i) ? 1 : 0);
    gguf_set_arr_data(g, (a + "attention.sliding_window_pattern").c_str(), GGUF_TYPE_BOOL, windows.data(),
                      windows.size());
  }
  if (s.own_kv_layers > 0) u32(a + "attention.shared_kv_layers", std::max(0, s.layers - s.own_kv_layers));
  if (s.per_layer > 0) u32(a + "embedding_length_per_layer_input", s.per_layer);
  if (s.latent) {
    u32(a + "attention.kv_lora_rank", s.latent.rank);
    if (s.latent.query_rank > 0) u32(a + "attention.q_lora_rank", s.latent.query_rank);
    if (s.latent.absorbed) u32(a + "attention.key_length_mla", s.latent.key + s.rope_dims);
    if (s.latent.absorbed) u32(a + "attention.value_length_mla", s.latent.value);
  }
  if (s.state_heads) {
    u32(a + "ssm.conv_kernel", s.convolution_taps);
    u32(a + "ssm.inner_size", s.state_heads.heads * s.state_heads.head_dim);
    u32(a + "ssm.time_step_rank", s.state_heads.heads);
    u32(a + "ssm.group_count", s.state_heads.groups);
    u32(a + "ssm.state_size", s.state_heads.state_width);
  } else if (s.convolution_taps > 0) {
    u32(a + "shortconv.l_cache", s.convolution_taps);
  }
  if (s.attention_interval > 0) u32(a + "full_attention_interval", s.attention_interval);
  const Family& family = find_family(s.architecture);
  f32(a + (family.norm == Norm::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"), 1e-5);
  if (family.rope != RopeKind::kNone) {
    u32(a + "rope.dimension_count", s.rope_dims < 0 ? s.head_dim : s.rope_dims);
    f32(a + "rope.freq_base", s.rope_base);
  }
  if (s.experts > 0) {
    u32(a + "expert_count", s.experts);
    u32(a + "expert_used_count", s.experts_used);
    u32(a + "expert_feed_forward_length", s.expert_feed_forward > 0 ? s.expert_feed_forward : s.feed_forward);
  }
  if (s.expert_latent > 0) u32(a + "moe_latent_size", s.expert_latent);
  if (s.adjugate_group > 0) {
    u32(a + "experts_per_group", s.adjugate_group);
    u32(a + "expert_chunk_feed_forward_length", s.adjugate_feed_forward);
  }
  if (s.leading_dense > 0) u32(a + "leading_dense_block_count", s.leading_dense);
  if (s.shared_feed_forward > 0) u32(a + "expert_shared_feed_forward_length", s.shared_feed_forward);
  u32(a + "vocab_size", s.vocabulary);
  if (!s.rope_scaling.empty()) {
    gguf_set_val_str(g, (a + "rope.scaling.type").c_str(), s.rope_scaling.c_str());
    f32(a + "rope.scaling.factor", s.rope_factor);
  }
  if (s.original_context > 0) u32(a + "rope.scaling.original_context_length", s.original_context);
  for (const ExtraKey& key : s.keys) {
    const std::string name = (key.whole ? "" : a) + key.name;
    if (key.type == ExtraKey::Type::kInteger) u32(name, static_cast<int>(key.value));
    if (key.type == ExtraKey::Type::kSigned) gguf_set_val_i32(g, name.c_str(), static_cast<std::int32_t>(key.value));
    if (key.type == ExtraKey::Type::kNumber) f32(name, key.value);
    if (key.type == ExtraKey::Type::kPattern) {
      std::vector<std::int8_t> flags;
      for (int i = 0; i < s.layers; ++i) flags.push_back((i + 1) % static_cast<int>(key.value) != 0);
      gguf_set_arr_data(g, name.c_str(), GGUF_TYPE_BOOL, flags.data(), flags.size());
    }
    if (key.type == ExtraKey::Type::kFlag) gguf_set_val_bool(g, name.c_str(), key.value != 0);
  }

  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};  // unknown, control, control
  for (int b = 0; b < 256; ++b) {
    pieces.push_back(fmt::format("<0x{:02X}>", b));
    types.push_back(6);  // byte
  }
  if (s.architecture == "phi3") pieces.push_back("<|endoftext|>");  // libllama expects it here
  pieces.push_back("\u2581");
  for (char c = 'a'; c <= 'z'; ++c) pieces.push_back(std::string(1, c));
  for (int i = static_cast<int>(pieces.size()); i < s.vocabulary; ++i) pieces.push_back(fmt::format("\u2581w{}", i));
  pieces.resize(s.vocabulary);
  types.resize(s.vocabulary, 1);  // normal
  std::vector<const char*> texts;
  std::vector<float> scores;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    texts.push_back(pieces[i].c_str());
    scores.push_back(i < kFirstPiece ? 0.0F : -static_cast<float>(i));
  }
  gguf_set_val_str(g, "tokenizer.ggml.model", "llama");
  gguf_set_arr_str(g, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  u32("tokenizer.ggml.unknown_token_id", 0);
  u32("tokenizer.ggml.bos_token_id", 1);
  u32("tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", true);
}

// Fills tensors. Large matrices repeat a pool of 512 rows: quantizing every row of a large model would take minutes.
class Filler {
 public:
  explicit Filler(const SyntheticShape& shape) : shape_(shape), random_(shape.seed) {}

  void fill(const Tensor& t, std::byte* out) {
    if (t.name == "rope_freqs.weight" && shape_.rope_share < 1)
      return factors_of_share(shape_, reinterpret_cast<float*>(out));
    if (t.name == "rope_freqs.weight") return llama3_factors(shape_, reinterpret_cast<float*>(out));
    const std::size_t row = ggml_row_size(t.type, t.ne[0]);
    if (t.ne[0] * t.rows() <= kMaxUniqueElements) return fill_unique(t, t.rows(), out);
    std::vector<std::byte>& pool = pools_[{t.ne[0], t.type}];
    if (pool.empty()) {
      pool.resize(kPoolRows * row);
      fill_unique(t, kPoolRows, pool.data());
    }
    for (std::int64_t i = 0; i < t.rows(); ++i)
      std::memcpy(out + i * row, pool.data() + (random_.next() >> 33) % kPoolRows * row, row);
  }

 private:
  void fill_unique(const Tensor& t, std::int64_t rows, std::byte* out) {
    std::vector<float> values(static_cast<std::size_t>(t.ne[0] * rows));
    for (float& v : values) v = t.mean + t.deviation * random_.normal();
    if (t.type == GGML_TYPE_F32)
      std::memcpy(out, values.data(), values.size() * sizeof(float));
    else
      ggml_quantize_chunk(t.type, values.data(), out, 0, rows, t.ne[0], nullptr);
  }

  const SyntheticShape& shape_;
  Random random_;
  std::map<std::pair<std::int64_t, ggml_type>, std::vector<std::byte>> pools_;  // by width and type of a row
};

struct Image {
  std::vector<Tensor> tensors;
  std::vector<std::byte> header;
  std::vector<std::size_t> offsets;  // of the tensors, after the header
  std::size_t bytes = 0;             // of all
};

Image lay_out(const SyntheticShape& s) {
  Image image;
  image.tensors = tensors_of(s);
  const gguf_context_ptr g(gguf_init_empty());
  set_metadata(g.get(), s);
  const ggml_context_ptr context(ggml_init({(image.tensors.size() + 1) * ggml_tensor_overhead(), nullptr, true}));
  for (const Tensor& t : image.tensors) {
    const int dims = t.ne[2] > 1 ? 3 : t.ne[1] > 1 ? 2 : 1;
    ggml_tensor* info = ggml_new_tensor(context.get(), t.type, dims, t.ne.data());
    ggml_set_name(info, t.name.c_str());
    gguf_add_tensor(g.get(), info);
  }
  image.header.resize(gguf_get_meta_size(g.get()));
  gguf_get_meta_data(g.get(), image.header.data());
  image.bytes = image.header.size();
  for (std::size_t i = 0; i < image.tensors.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    image.offsets.push_back(gguf_get_tensor_offset(g.get(), id));
    image.bytes = image.header.size() + image.offsets.back() + gguf_get_tensor_size(g.get(), id);
  }
  image.bytes = (image.bytes + GGUF_DEFAULT_ALIGNMENT - 1) / GGUF_DEFAULT_ALIGNMENT * GGUF_DEFAULT_ALIGNMENT;
  return image;
}

}  // namespace

ggml_type parse_weight_type(std::string_view text) {
  constexpr std::array kTypes = {GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_BF16,   GGML_TYPE_Q8_0,
                                 GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,   GGML_TYPE_Q5_0,   GGML_TYPE_Q5_1,
                                 GGML_TYPE_Q2_K, GGML_TYPE_Q3_K,   GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,
                                 GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4};
  std::string known;
  for (const ggml_type type : kTypes) {
    const std::string_view name = ggml_type_name(type);
    if (name.size() == text.size() &&
        std::equal(name.begin(), name.end(), text.begin(), [](char x, char y) { return (x | 32) == (y | 32); }))
      return type;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail("synthetic model: type \"{}\" is unknown; there are: {}", printable(text), known);
}

std::string synthetic_names() {
  std::string out;
  for (const auto& [name, shape] : synthetic_shapes())
    if (!name.starts_with("tiny-")) out += name + ", ";
  return out + "tiny-nope, tiny-mixtral, and tiny-ARCHITECTURE for each of `info --families`";
}

SyntheticShape parse_synthetic(std::string_view text) {
  const auto cut = [&text] {
    const std::size_t at = text.find('@');
    const std::string_view part = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    return part;
  };
  const std::string_view name = cut();
  const auto it = synthetic_shapes().find(name);
  if (it == synthetic_shapes().end())
    fail("synthetic model \"{}\" is unknown; there are: {}", printable(name), synthetic_names());
  SyntheticShape s = it->second;
  while (!text.empty()) {
    const std::string_view part = cut();
    const std::size_t eq = part.find('=');
    const std::string_view key = part.substr(0, eq);
    const std::string_view value = eq == std::string_view::npos ? std::string_view() : part.substr(eq + 1);
    const auto number = [&](int min, int max) {
      int out = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
      if (error != std::errc() || end != value.data() + value.size() || out < min || out > max)
        fail("synthetic model: {}=\"{}\" must be a whole number from {} to {}", key, printable(value), min, max);
      return out;
    };
    if (key == "layers")
      s.layers = number(1, 1000);
    else if (key == "vocab")
      s.vocabulary = number(kFirstPiece + 1, 1 << 20);
    else if (key == "seed")
      s.seed = static_cast<std::uint64_t>(number(0, 1 << 30));
    else if (key == "type")
      s.type = parse_weight_type(value);
    else if (key == "context")
      s.context = number(1, 1 << 24);
    else if (key == "rope")
      s.rope_dims = number(0, s.head_dim) / 2 * 2;
    else
      fail("synthetic model: \"@{}\" is unknown; use @layers=N, @type=NAME, @vocab=N, @context=N, @rope=N, @seed=N",
           printable(part));
  }
  return s;
}

GgufFile make_synthetic(const SyntheticShape& shape) {
  const Image image = lay_out(shape);
  void* memory = ::mmap(nullptr, image.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    fail("synthetic model {}: no memory for {} MiB; use fewer @layers", shape.name, image.bytes >> 20);
  const std::size_t bytes = image.bytes;
  const std::shared_ptr<const void> keep(memory, [bytes](void* p) { ::munmap(p, bytes); });
  auto* at = static_cast<std::byte*>(memory);
  std::memcpy(at, image.header.data(), image.header.size());
  Filler filler(shape);
  for (std::size_t i = 0; i < image.tensors.size(); ++i)
    filler.fill(image.tensors[i], at + image.header.size() + image.offsets[i]);
  return GgufFile::parse({at, bytes}, "synthetic model " + shape.name, keep);
}

void write_synthetic(const SyntheticShape& shape, const std::string& path) {
  const Image image = lay_out(shape);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const auto write = [&](const std::byte* data, std::size_t size) {
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  };
  write(image.header.data(), image.header.size());
  Filler filler(shape);
  std::vector<std::byte> data;
  for (std::size_t i = 0; i < image.tensors.size(); ++i) {
    const Tensor& t = image.tensors[i];
    const std::size_t end = i + 1 < image.offsets.size() ? image.offsets[i + 1] : image.bytes - image.header.size();
    data.assign(end - image.offsets[i], std::byte{0});
    filler.fill(t, data.data());
    write(data.data(), data.size());
  }
  out.close();
  if (!out) fail("{}: cannot be written; is there room for {} MiB?", path, image.bytes >> 20);
}

}  // namespace palimpsest
