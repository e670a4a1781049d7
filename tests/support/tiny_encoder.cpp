#include "tests/support/tiny_encoder.h"

#include <ggml-cpp.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "palimpsest/core/gguf_file.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kWords[] = {"the", "cat", "sat", "on", "a", "mat", "dog", "ran", "home"};

class EncoderWriter {
 public:
  EncoderWriter() : context_(ggml_init({std::size_t{8} << 20, nullptr, false})), gguf_(gguf_init_empty()) {}

  // Random in [-1, 1] * scale + centre.
  void tensor(const std::string& name, std::vector<std::int64_t> ne, float scale, float centre = 0) {
    ggml_tensor* const out = ggml_new_tensor(context_.get(), GGML_TYPE_F32, static_cast<int>(ne.size()), ne.data());
    ggml_set_name(out, name.c_str());
    auto* const data = static_cast<float*>(out->data);
    for (std::int64_t i = 0; i < ggml_nelements(out); ++i)
      data[i] = centre + scale * (static_cast<float>(random_() >> 8) / static_cast<float>(1 << 23) - 1);
    gguf_add_tensor(gguf_.get(), out);
  }
  void number(const std::string& key, int value) {
    gguf_set_val_u32(gguf_.get(), key.c_str(), static_cast<std::uint32_t>(value));
  }
  gguf_context* get() { return gguf_.get(); }

 private:
  ggml_context_ptr context_;
  gguf_context_ptr gguf_;
  std::mt19937 random_{7};
};

// Returns the number of tokens.
int write_words(EncoderWriter& out) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::vector<std::int32_t> types = {3, 2, 3, 3, 3};
  for (const char* word : kWords) tokens.push_back("\xE2\x96\x81" + std::string(word));
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    tokens.emplace_back(1, letter);
    if (letter != 'a') tokens.push_back("\xE2\x96\x81" + std::string(1, letter));  // "a" is a word
  }
  types.resize(tokens.size(), 1);
  std::vector<const char*> texts;
  for (const std::string& token : tokens) texts.push_back(token.c_str());
  gguf_set_val_str(out.get(), "tokenizer.ggml.model", "bert");
  gguf_set_arr_str(out.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(out.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  out.number("tokenizer.ggml.token_type_count", 2);
  const std::pair<const char*, int> special[] = {{"padding", 0}, {"unknown", 1},   {"bos", 2},
                                                 {"cls", 2},     {"seperator", 3}, {"mask", 4}};
  for (const auto& [name, id] : special) out.number("tokenizer.ggml." + std::string(name) + "_token_id", id);
  return static_cast<int>(tokens.size());
}

void write_bert(EncoderWriter& out, const TinyEncoder& shape, int vocabulary) {
  const std::string& architecture = shape.architecture;
  const bool bert = architecture != "nomic-bert",
             gated = architecture == "nomic-bert" || architecture == "jina-bert-v2";
  const auto moe_every = shape.keys.find("moe_every_n_layers");
  const std::int64_t n = shape.width, wide = shape.feed_forward;
  const auto norm = [&](const std::string& name) {
    out.tensor(name + ".weight", {n}, 0.2F, 1);
    out.tensor(name + ".bias", {n}, 0.1F);
  };
  out.tensor("token_embd.weight", {n, vocabulary}, 1);
  out.tensor("token_types.weight", {n, 2}, 0.5F);
  if (architecture == "bert") out.tensor("position_embd.weight", {n, shape.context}, 0.5F);
  norm("token_embd_norm");
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      out.tensor(layer + name + ".weight", {n, n}, 0.3F);
      if (bert) out.tensor(layer + name + ".bias", {n}, 0.2F);
    }
    norm(layer + "attn_output_norm");
    norm(layer + "layer_output_norm");
    if (moe_every != shape.keys.end() && i % moe_every->second == 1) {
      const std::int64_t experts = shape.keys.at("expert_count");
      out.tensor(layer + "ffn_gate_inp.weight", {n, experts}, 0.3F);
      out.tensor(layer + "ffn_up_exps.weight", {n, wide, experts}, 0.3F);
      out.tensor(layer + "ffn_down_exps.weight", {wide, n, experts}, 0.3F);
      continue;
    }
    out.tensor(layer + "ffn_up.weight", {n, wide}, 0.3F);
    if (bert && !gated) out.tensor(layer + "ffn_up.bias", {wide}, 0.2F);
    if (gated) out.tensor(layer + "ffn_gate.weight", {n, wide}, 0.3F);
    out.tensor(layer + "ffn_down.weight", {wide, n}, 0.3F);
    if (bert) out.tensor(layer + "ffn_down.bias", {n}, 0.2F);
  }
}

void write_eurobert(EncoderWriter& out, const TinyEncoder& shape, int vocabulary) {
  const std::int64_t n = shape.width, wide = shape.feed_forward;
  out.tensor("token_embd.weight", {n, vocabulary}, 1);
  out.tensor("output_norm.weight", {n}, 0.2F, 1);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_norm", "ffn_norm"}) out.tensor(layer + name + ".weight", {n}, 0.2F, 1);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
      out.tensor(layer + name + ".weight", {n, n}, 0.3F);
    if (shape.architecture == "qwen3")
      for (const char* name : {"attn_q_norm", "attn_k_norm"})
        out.tensor(layer + name + ".weight", {n / shape.heads}, 0.2F, 1);
    for (const char* name : {"ffn_gate", "ffn_up"}) out.tensor(layer + name + ".weight", {n, wide}, 0.3F);
    out.tensor(layer + "ffn_down.weight", {wide, n}, 0.3F);
  }
}

void write_t5(EncoderWriter& out, const TinyEncoder& shape, int vocabulary) {
  constexpr int kBuckets = 16;
  const std::int64_t n = shape.width, wide = shape.feed_forward;
  out.number("t5encoder.attention.relative_buckets_count", kBuckets);
  out.tensor("token_embd.weight", {n, vocabulary}, 1);
  out.tensor("enc.output_norm.weight", {n}, 0.2F, 1);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "enc.blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_norm", "ffn_norm"}) out.tensor(layer + name + ".weight", {n}, 0.2F, 1);
    if (i == 0) out.tensor(layer + "attn_rel_b.weight", {shape.heads, kBuckets}, 1);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_o"})
      out.tensor(layer + name + ".weight", {n, n}, 0.3F);
    for (const char* name : {"ffn_gate", "ffn_up"}) out.tensor(layer + name + ".weight", {n, wide}, 0.3F);
    out.tensor(layer + "ffn_down.weight", {wide, n}, 0.3F);
  }
}

// ModernBERT and NeoBERT: Q, K and V are one tensor, gate and up another. ModernBERT's first layer has no norm before
// attention.
void write_modern_bert(EncoderWriter& out, const TinyEncoder& shape, int vocabulary) {
  const std::int64_t n = shape.width, wide = shape.feed_forward;
  const bool modern = shape.architecture == "modern-bert";
  const auto norm = [&](const std::string& name) { out.tensor(name + ".weight", {n}, 0.2F, 1); };
  out.tensor("token_embd.weight", {n, vocabulary}, 1);
  if (modern) norm("token_embd_norm");
  norm(modern ? "output_norm" : "enc.output_norm");
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    if (!modern || i > 0) norm(layer + "attn_norm");
    norm(layer + "ffn_norm");
    out.tensor(layer + "attn_qkv.weight", {n, 3 * n}, 0.3F);
    out.tensor(layer + "attn_output.weight", {n, n}, 0.3F);
    out.tensor(layer + "ffn_up.weight", {n, 2 * wide}, 0.3F);
    out.tensor(layer + "ffn_down.weight", {wide, n}, 0.3F);
  }
}

// EmbeddingGemma: norms before and after each part, norms of Q and K.
void write_gemma_embedding(EncoderWriter& out, const TinyEncoder& shape, int vocabulary) {
  const std::int64_t n = shape.width, wide = shape.feed_forward;
  out.tensor("token_embd.weight", {n, vocabulary}, 1);
  out.tensor("output_norm.weight", {n}, 0.2F, 1);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"})
      out.tensor(layer + name + ".weight", {n}, 0.2F, 1);
    for (const char* name : {"attn_q_norm", "attn_k_norm"})
      out.tensor(layer + name + ".weight", {n / shape.heads}, 0.2F, 1);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
      out.tensor(layer + name + ".weight", {n, n}, 0.3F);
    for (const char* name : {"ffn_gate", "ffn_up"}) out.tensor(layer + name + ".weight", {n, wide}, 0.3F);
    out.tensor(layer + "ffn_down.weight", {wide, n}, 0.3F);
  }
}

using Vector = std::vector<double>;

class PlainWeights {
 public:
  explicit PlainWeights(const std::string& path) : file_(GgufFile::open(path)) {}

  int number(const char* key) const { return static_cast<int>(*file_.integer(key)); }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  Vector row(const std::string& name, std::size_t index = 0) const {
    const GgufTensor& tensor = find(name);
    const auto width = static_cast<std::size_t>(tensor.ne[0]);
    std::vector<float> floats(width);
    std::memcpy(floats.data(), tensor.data + index * width * sizeof(float), width * sizeof(float));
    return {floats.begin(), floats.end()};
  }
  // weight x + bias
  Vector linear(const std::string& name, const Vector& x) const {
    const auto rows = static_cast<std::size_t>(find(name + ".weight").ne[1]);
    Vector out = row(name + ".bias");
    for (std::size_t i = 0; i < rows; ++i) {
      const Vector weights = row(name + ".weight", i);
      for (std::size_t j = 0; j < x.size(); ++j) out[i] += weights[j] * x[j];
    }
    return out;
  }
  Vector norm(const std::string& name, const Vector& x) const {
    double mean = 0, square = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
    const Vector weight = row(name + ".weight"), bias = row(name + ".bias");
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = (x[i] - mean) / std::sqrt(square + 1e-12) * weight[i] + bias[i];
    return out;
  }

 private:
  const GgufTensor& find(const std::string& name) const {
    const GgufTensor* const tensor = file_.find(name);
    if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
    return *tensor;
  }
  GgufFile file_;
};

void add_to(Vector& to, const Vector& x) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += x[i];
}

double plain_gelu(double x) {
  constexpr double kRoot = 0.79788456080286535588;  // sqrt(2 / pi)
  return 0.5 * x * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x)));
}

}  // namespace

std::string tiny_encoder(const TinyEncoder& shape, const std::string& name) {
  EncoderWriter out;
  gguf_set_val_str(out.get(), "general.architecture", shape.architecture.c_str());
  gguf_set_val_str(out.get(), "general.name", "tiny encoder");
  std::map<std::string, int> keys = {{"block_count", shape.layers},
                                     {"embedding_length", shape.width},
                                     {"context_length", shape.context},
                                     {"feed_forward_length", shape.feed_forward},
                                     {"attention.head_count", shape.heads}};
  if (shape.pooling > 0) keys["pooling_type"] = shape.pooling;
  for (const auto& [key, value] : shape.keys) keys[key] = value;
  for (const auto& [key, value] : keys) out.number(shape.architecture + "." + key, value);
  for (const char* key : {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"})
    gguf_set_val_f32(out.get(), (shape.architecture + "." + key).c_str(), 1e-12F);
  const bool decodes = shape.architecture == "qwen3";
  if (!decodes) gguf_set_val_bool(out.get(), (shape.architecture + ".attention.causal").c_str(), false);
  const int vocabulary = write_words(out);
  if (shape.architecture == "eurobert" || decodes)
    write_eurobert(out, shape, vocabulary);
  else if (shape.architecture == "t5encoder")
    write_t5(out, shape, vocabulary);
  else if (shape.architecture == "modern-bert" || shape.architecture == "neo-bert")
    write_modern_bert(out, shape, vocabulary);
  else if (shape.architecture == "gemma-embedding")
    write_gemma_embedding(out, shape, vocabulary);
  else
    write_bert(out, shape, vocabulary);
  if (shape.head && decodes) {
    const char* labels[] = {"yes", "no"};
    gguf_set_arr_str(out.get(), "qwen3.classifier.output_labels", labels, 2);
    out.tensor("cls.output.weight", {shape.width, 2}, 0.3F);
  } else if (shape.head) {
    out.tensor("cls.weight", {shape.width, shape.width}, 0.3F);
    out.tensor("cls.bias", {shape.width}, 0.2F);
    out.tensor("cls.output.weight", {shape.width, 1}, 1);
    out.tensor("cls.output.bias", {1}, 0.2F);
  }
  const std::string path = own_file(name);
  if (!gguf_write_to_file(out.get(), path.c_str(), false)) throw std::runtime_error("cannot write " + path);
  return path;
}

std::vector<std::vector<double>> plain_bert(const std::string& path, const std::vector<TokenId>& tokens) {
  const PlainWeights w(path);
  const auto heads = static_cast<std::size_t>(w.number("bert.attention.head_count"));
  const auto width = static_cast<std::size_t>(w.number("bert.embedding_length")), head_width = width / heads;
  std::vector<Vector> x;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Vector sum = w.row("token_embd.weight", static_cast<std::size_t>(tokens[i]));
    add_to(sum, w.row("token_types.weight"));
    add_to(sum, w.row("position_embd.weight", i));
    x.push_back(w.norm("token_embd_norm", sum));
  }
  for (int layer = 0; layer < w.number("bert.block_count"); ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    std::vector<Vector> q, k, v;
    for (const Vector& each : x) {
      q.push_back(w.linear(at + "attn_q", each));
      k.push_back(w.linear(at + "attn_k", each));
      v.push_back(w.linear(at + "attn_v", each));
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      Vector attended(width);
      for (std::size_t head = 0; head < heads; ++head) {
        Vector weights(x.size());
        double sum = 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
          double score = 0;
          for (std::size_t d = head * head_width; d < (head + 1) * head_width; ++d) score += q[i][d] * k[j][d];
          sum += weights[j] = std::exp(score / std::sqrt(static_cast<double>(head_width)));
        }
        for (std::size_t j = 0; j < x.size(); ++j)
          for (std::size_t d = head * head_width; d < (head + 1) * head_width; ++d)
            attended[d] += weights[j] / sum * v[j][d];
      }
      Vector out = w.linear(at + "attn_output", attended);
      add_to(out, x[i]);
      out = w.norm(at + "attn_output_norm", out);
      Vector inner = w.linear(at + "ffn_up", out);
      std::ranges::transform(inner, inner.begin(), plain_gelu);
      Vector next = w.linear(at + "ffn_down", inner);
      add_to(next, out);
      x[i] = w.norm(at + "layer_output_norm", next);
    }
  }
  return x;
}

double plain_score(const std::string& path, const std::vector<double>& hidden) {
  const PlainWeights w(path);
  Vector inner = w.linear("cls", hidden);
  for (double& each : inner) each = std::tanh(each);
  return w.linear("cls.output", inner).front();
}

}  // namespace palimpsest::testing
