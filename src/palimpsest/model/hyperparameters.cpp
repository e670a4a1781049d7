#include "palimpsest/model/hyperparameters.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/family.h"

namespace palimpsest {

namespace {

constexpr std::int64_t kMost = 1 << 24;  // no width, count or size of a layer is larger

// The keys of one architecture, "llama.block_count" and so on, with their ranges.
class Keys {
 public:
  Keys(const GgufFile& file, const std::string& architecture) : file_(file), prefix_(architecture + ".") {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }

  int required(std::string_view key, std::int64_t most = kMost) const {
    if (!file_.has(name(key))) fail("{}: key {} is missing; convert the model again", file_.path(), name(key));
    return optional(key, 0, most);
  }
  int optional(std::string_view key, int otherwise, std::int64_t most = kMost, std::int64_t least = 1) const {
    const auto value = file_.integer(name(key));
    if (!value) return otherwise;
    if (*value < least || *value > most)
      fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), *value, least, most);
    return static_cast<int>(*value);
  }
  // An integer, or an array with one for each layer: all must be equal.
  int same_for_all(std::string_view key, int layers, int otherwise) const {
    if (!file_.has(name(key))) return otherwise != 0 ? otherwise : required(key);
    if (!file_.is_array(name(key))) return optional(key, otherwise);
    const auto values = *file_.integers(name(key));
    if (static_cast<int>(values.size()) != layers || values.empty())
      fail("{}: key {} has {} values for {} layers: damaged", file_.path(), name(key), values.size(), layers);
    for (const std::int64_t v : values)
      if (v != values.front() || v < 1 || v > kMost)
        fail("{}: key {} differs between layers, which is not supported; use another model", file_.path(), name(key));
    return static_cast<int>(values.front());
  }
  double number(std::string_view key, double otherwise, double least, double most) const {
    const double value = file_.number(name(key)).value_or(otherwise);
    if (!(value >= least && value <= most))
      fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), value, least, most);
    return value;
  }
  std::string text(std::string_view key, const std::string& otherwise) const {
    return file_.text(name(key)).value_or(otherwise);
  }
  bool has(std::string_view key) const { return file_.has(name(key)); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

RopeOptions read_rope(const GgufFile& file, const Keys& keys, const Family& family, const Hyperparameters& h) {
  RopeOptions rope;
  rope.kind = family.rope;
  rope.dims = keys.optional("rope.dimension_count", h.head_dim, kMost, 0);
  if (rope.dims % 2 != 0 || rope.dims > h.head_dim)
    fail("{}: rope.dimension_count is {}; it must be even and at most the head dimension {}", file.path(), rope.dims,
         h.head_dim);
  if (rope.dims == 0) rope.kind = RopeKind::kNone;  // nothing turns: NoPE
  rope.base = keys.number("rope.freq_base", 10000.0, 1.0, 1e15);
  rope.original_context = keys.optional("rope.scaling.original_context_length", h.trained_context, INT32_MAX);
  const double old_style = keys.number("rope.scale_linear", 1.0, 0.0, 1e9);
  double factor = keys.number("rope.scaling.factor", old_style, 0.0, 1e9);
  if (factor == 0) factor = 1;  // how some converters say "none"
  const std::string type = keys.text("rope.scaling.type", "linear");
  if (type == "linear") {
    rope.linear_scale = factor;
  } else if (type == "yarn") {
    rope.linear_scale = factor;
    rope.yarn_ext_factor = keys.number("rope.scaling.yarn_ext_factor", 1.0, 0.0, 1e6);
    rope.yarn_beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0, 1e-6, 1e9);
    rope.yarn_beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0, 1e-6, 1e9);
    if (keys.has("rope.scaling.yarn_log_multiplier"))
      fail("{}: key {} is not supported; use another model", file.path(),
           keys.name("rope.scaling.yarn_log_multiplier"));
  } else if (type != "none") {
    fail("{}: rope scaling \"{}\" is not supported; linear, yarn and Llama 3's factors are", file.path(), type);
  }
  rope.yarn_attn_factor = keys.number("rope.scaling.attn_factor", 1.0, 1e-6, 1e6) *
                          keys.number("rope.scaling.yarn_attn_factor", 1.0, 1e-6, 1e6);

  if (const GgufTensor* factors = file.find("rope_freqs.weight")) {
    if (factors->type != GGML_TYPE_F32 || factors->ne[0] != rope.dims / 2 || factors->bytes != 2u * rope.dims)
      fail("{}: tensor rope_freqs.weight is {} [{}]; expected f32 [{}]", file.path(), ggml_type_name(factors->type),
           factors->ne[0], rope.dims / 2);
    rope.factors.resize(rope.dims / 2);
    std::memcpy(rope.factors.data(), factors->data, factors->bytes);
    for (const float f : rope.factors)
      if (!(f > 0 && std::isfinite(f)))
        fail("{}: tensor rope_freqs.weight has a factor of {}: damaged", file.path(), f);
  }
  return rope;
}

}  // namespace

Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family) {
  const Keys keys(file, std::string(family.architecture));
  Hyperparameters h;
  h.architecture = family.architecture;
  h.name = file.text("general.name").value_or("");
  if (file.integer("split.count").value_or(1) > 1)
    fail("{}: is one part of a split model; join the parts with llama-gguf-split --merge", file.path());
  if (keys.has("expert_count") && file.integer(keys.name("expert_count")) != 0)
    fail("{}: is a mixture of experts, which is not supported; use a dense model", file.path());

  h.layers = keys.required("block_count", 4096);
  h.width = keys.required("embedding_length");
  h.feed_forward = keys.same_for_all("feed_forward_length", h.layers, 0);
  h.trained_context = keys.required("context_length", INT32_MAX);
  h.query_heads = keys.same_for_all("attention.head_count", h.layers, 0);
  h.kv_heads = keys.same_for_all("attention.head_count_kv", h.layers, h.query_heads);
  if (h.query_heads % h.kv_heads != 0)
    fail("{}: {} query heads cannot be shared out over {} key/value heads: damaged", file.path(), h.query_heads,
         h.kv_heads);
  if (!keys.has("attention.key_length") && h.width % h.query_heads != 0)
    fail("{}: a width of {} cannot be shared out over {} heads: damaged", file.path(), h.width, h.query_heads);
  h.head_dim = keys.optional("attention.key_length", h.width / h.query_heads, 4096);
  h.value_dim = keys.optional("attention.value_length", h.head_dim, 4096);
  if (!keys.has("attention.layer_norm_rms_epsilon"))
    fail("{}: key {} is missing; convert the model again", file.path(), keys.name("attention.layer_norm_rms_epsilon"));
  h.norm_epsilon = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", 0.0, 0.0, 1.0));
  h.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.head_dim)));
  h.rope = read_rope(file, keys, family, h);
  h.windows.assign(static_cast<std::size_t>(h.layers), INT32_MAX);

  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail("{}: tensor token_embd.weight is missing; is it a whole model?", file.path());
  const std::int64_t rows = embedding->ne[1];
  if (rows > kMost) fail("{}: tensor token_embd.weight has {} rows: damaged", file.path(), rows);
  h.vocabulary = static_cast<int>(rows);
  const int claimed = keys.optional("vocab_size", h.vocabulary);
  const std::size_t tokens = file.array_size("tokenizer.ggml.tokens");
  if (claimed != h.vocabulary || (tokens != 0 && tokens != static_cast<std::size_t>(h.vocabulary)))
    fail("{}: the embedding has {} rows, vocab_size is {} and the tokenizer has {} tokens: damaged", file.path(),
         h.vocabulary, claimed, tokens);
  return h;
}

}  // namespace palimpsest
