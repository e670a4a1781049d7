// Families and features that libllama has no graph for, against their formulas in double precision: plain loops over
// whole sequences, no cache, no graph. GPT-J: github.com/kingoflolz/mesh-transformer-jax; OPT: arXiv 2205.01068; MPT's
// norm of queries and keys; Llama without rotary positions (EQUIP, table 4).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/decoder.h"
#include "palimpsest/model/synthetic.h"

namespace palimpsest {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // one for each token

// ggml keeps GELU in a table over f16: what goes in is rounded to f16, what comes out too.
double gelu(double x) {
  const double in = ggml_fp16_to_fp32(ggml_fp32_to_fp16(static_cast<float>(x)));
  const double out = 0.5 * in * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * in * (1 + 0.044715 * in * in)));
  return ggml_fp16_to_fp32(ggml_fp32_to_fp16(static_cast<float>(out)));
}
double relu(double x) {
  return std::max(x, 0.0);
}
double silu(double x) {
  return x / (1 + std::exp(-x));
}

class Plain {
 public:
  explicit Plain(const SyntheticShape& shape) : s_(shape), file_(make_synthetic(shape)) {}

  // An f32 tensor's row; the only row of a vector.
  Row row(const std::string& name, std::int64_t index = 0) const {
    const GgufTensor* t = file_.find(name);
    if (t == nullptr) throw std::runtime_error("no tensor " + name);
    const float* from = reinterpret_cast<const float*>(t->data) + index * t->ne[0];
    return Row(from, from + t->ne[0]);
  }
  Rows linear(const Rows& x, const std::string& name) const {  // with its bias, if it has one
    const GgufTensor* t = file_.find(name + ".weight");
    if (t == nullptr) throw std::runtime_error("no tensor " + name);
    Rows out(x.size(), Row(static_cast<std::size_t>(t->ne[1])));
    for (std::int64_t r = 0; r < t->ne[1]; ++r) {
      const Row w = row(name + ".weight", r);
      for (std::size_t i = 0; i < x.size(); ++i)
        for (std::size_t d = 0; d < w.size(); ++d) out[i][static_cast<std::size_t>(r)] += w[d] * x[i][d];
    }
    return add_bias(std::move(out), name + ".bias");
  }
  Rows add_bias(Rows x, const std::string& name) const {
    if (file_.find(name) == nullptr) return x;
    const Row bias = row(name);
    for (Row& r : x)
      for (std::size_t d = 0; d < r.size(); ++d) r[d] += bias[d];
    return x;
  }
  Rows norm(Rows x, const std::string& name, bool centre) const {
    const Row weight = row(name + ".weight");
    for (Row& r : x) {
      double mean = 0, square = 0;
      for (const double v : r) mean += centre ? v / static_cast<double>(r.size()) : 0;
      for (const double v : r) square += (v - mean) * (v - mean) / static_cast<double>(r.size());
      for (std::size_t d = 0; d < r.size(); ++d) r[d] = (r[d] - mean) / std::sqrt(square + 1e-5) * weight[d];
    }
    return add_bias(std::move(x), name + ".bias");
  }
  static Rows map(Rows x, double (*f)(double)) {
    for (Row& r : x)
      for (double& v : r) v = f(v);
    return x;
  }
  static Rows plus(Rows a, const Rows& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t d = 0; d < a[i].size(); ++d) a[i][d] += b[i][d];
    return a;
  }
  // Columns first .. first + count of each row.
  static Rows columns(const Rows& x, std::size_t first, std::size_t count) {
    Rows out;
    for (const Row& r : x)
      out.emplace_back(r.begin() + static_cast<std::ptrdiff_t>(first),
                       r.begin() + static_cast<std::ptrdiff_t>(first + count));
    return out;
  }

  // Neighbours (2i, 2i + 1) of each head's first dimensions turn by position * base^(-2i / dims).
  Rows turned(Rows x, int heads) const {
    const int dims = s_.rope_dims < 0 ? s_.head_dim : s_.rope_dims;
    for (std::size_t p = 0; p < x.size(); ++p)
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < dims / 2; ++i) {
          const double angle = static_cast<double>(p) * std::pow(s_.rope_base, -2.0 * i / dims);
          double& a = x[p][static_cast<std::size_t>(h * s_.head_dim + 2 * i)];
          double& b = x[p][static_cast<std::size_t>(h * s_.head_dim + 2 * i + 1)];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = turned;
        }
    return x;
  }
  // Causal; `bias(head, distance)` is added to the scores.
  Rows attention(
      const Rows& q, const Rows& k, const Rows& v,
      const std::function<double(int, double)>& bias = [](int, double) { return 0.0; }) const {
    const auto dim = static_cast<std::size_t>(s_.head_dim);
    Rows out(q.size(), Row(q[0].size()));
    for (int h = 0; h < s_.query_heads; ++h) {
      const std::size_t at = static_cast<std::size_t>(h) * dim;
      const std::size_t kv = static_cast<std::size_t>(h / (s_.query_heads / s_.kv_heads)) * dim;
      for (std::size_t i = 0; i < q.size(); ++i) {
        Row weight(i + 1);
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) score += q[i][at + d] * k[j][kv + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(dim)) + bias(h, static_cast<double>(i - j)));
          sum += weight[j];
        }
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t d = 0; d < dim; ++d) out[i][at + d] += weight[j] / sum * v[j][kv + d];
      }
    }
    return out;
  }
  Rows embedded(const std::vector<TokenId>& tokens) const {
    Rows x;
    for (const TokenId t : tokens) x.push_back(row("token_embd.weight", t));
    return x;
  }
  const SyntheticShape& shape() const { return s_; }

 private:
  SyntheticShape s_;
  GgufFile file_;
};

std::string block(int layer) {
  return "blk." + std::to_string(layer) + ".";
}

// Attention and feed-forward read the same normed x.
Rows gpt_j(const Plain& m, const std::vector<TokenId>& tokens) {
  Rows x = m.embedded(tokens);
  for (int i = 0; i < m.shape().layers; ++i) {
    const std::string b = block(i);
    const Rows in = m.norm(x, b + "attn_norm", true);
    const Rows q = m.turned(m.linear(in, b + "attn_q"), m.shape().query_heads);
    const Rows k = m.turned(m.linear(in, b + "attn_k"), m.shape().kv_heads);
    const Rows a = m.linear(m.attention(q, k, m.linear(in, b + "attn_v")), b + "attn_output");
    const Rows f = m.linear(Plain::map(m.linear(in, b + "ffn_up"), gelu), b + "ffn_down");
    x = Plain::plus(Plain::plus(x, a), f);
  }
  return m.linear(m.norm(x, "output_norm", true), "output");
}

Rows opt(const Plain& m, const std::vector<TokenId>& tokens) {
  Rows x = m.embedded(tokens);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = Plain::plus({x[i]}, {m.row("position_embd.weight", static_cast<std::int64_t>(i))})[0];
  for (int i = 0; i < m.shape().layers; ++i) {
    const std::string b = block(i);
    const Rows in = m.norm(x, b + "attn_norm", true);
    const Rows a = m.attention(m.linear(in, b + "attn_q"), m.linear(in, b + "attn_k"), m.linear(in, b + "attn_v"));
    x = Plain::plus(x, m.linear(a, b + "attn_output"));
    const Rows f = Plain::map(m.linear(m.norm(x, b + "ffn_norm", true), b + "ffn_up"), relu);
    x = Plain::plus(x, m.linear(f, b + "ffn_down"));
  }
  return m.linear(m.norm(x, "output_norm", true), "token_embd");
}

Rows llama_without_positions(const Plain& m, const std::vector<TokenId>& tokens) {
  Rows x = m.embedded(tokens);
  for (int i = 0; i < m.shape().layers; ++i) {
    const std::string b = block(i);
    const Rows in = m.norm(x, b + "attn_norm", false);
    const Rows a = m.attention(m.linear(in, b + "attn_q"), m.linear(in, b + "attn_k"), m.linear(in, b + "attn_v"));
    x = Plain::plus(x, m.linear(a, b + "attn_output"));
    const Rows to = m.norm(x, b + "ffn_norm", false);
    Rows gate = Plain::map(m.linear(to, b + "ffn_gate"), silu);
    const Rows up = m.linear(to, b + "ffn_up");
    for (std::size_t t = 0; t < gate.size(); ++t)
      for (std::size_t d = 0; d < gate[t].size(); ++d) gate[t][d] *= up[t][d];
    x = Plain::plus(x, m.linear(gate, b + "ffn_down"));
  }
  return m.linear(m.norm(x, "output_norm", false), "token_embd");
}

// Queries and keys are normed over all heads; what leaves the packed product is clamped at 2. Slopes for six heads,
// from the paper's recipe: those of four, then every other of eight.
Rows mpt(const Plain& m, const std::vector<TokenId>& tokens) {
  const double slopes[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  const auto width = static_cast<std::size_t>(m.shape().width);
  Rows x = m.embedded(tokens);
  for (int i = 0; i < m.shape().layers; ++i) {
    const std::string b = block(i);
    const Rows all = Plain::map(m.linear(m.norm(x, b + "attn_norm", true), b + "attn_qkv"),
                                [](double v) { return std::clamp(v, -2.0, 2.0); });
    const Rows q = m.norm(Plain::columns(all, 0, width), b + "attn_q_norm", true);
    const Rows k = m.norm(Plain::columns(all, width, width), b + "attn_k_norm", true);
    const Rows a = m.attention(q, k, Plain::columns(all, 2 * width, width),
                               [&](int head, double distance) { return -slopes[head] * distance; });
    x = Plain::plus(x, m.linear(a, b + "attn_output"));
    const Rows f = Plain::map(m.linear(m.norm(x, b + "ffn_norm", true), b + "ffn_up"), gelu);
    x = Plain::plus(x, m.linear(f, b + "ffn_down"));
  }
  return m.linear(m.norm(x, "output_norm", true), "token_embd");
}

// 200 tokens at once, in chunks and one by one. `bound`: of the largest logit.
void check(const char* name, Rows (*truth)(const Plain&, const std::vector<TokenId>&), double bound) {
  SyntheticShape shape = parse_synthetic(std::string(name) + "@vocab=300@context=256");
  std::mt19937 random(5);
  std::vector<TokenId> tokens(200);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<unsigned>(shape.vocabulary));
  const Rows expected = truth(Plain(shape), tokens);
  for (const bool portable : {false, true})
    for (const int chunk : {1, 64, 200}) {
      Decoder decoder(Model::from(make_synthetic(shape), {.portable = portable}), 1);
      CacheOptions options = decoder.cache_options();
      options.type = CacheType::kF32;
      Cache cache(options);
      double worst = 0;
      for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(chunk)) {
        const auto part = std::span(tokens).subspan(
            first, std::min<std::size_t>(static_cast<std::size_t>(chunk), tokens.size() - first));
        cache.insert(static_cast<int>(part.size()));
        const SequenceStep step{.cache = &cache, .tokens = part, .all_logits = true};
        const auto logits = decoder.step({&step, 1});
        for (std::size_t i = 0; i < part.size(); ++i) {
          const Row& want = expected[first + i];
          double error = 0, size = 0;
          for (std::size_t v = 0; v < want.size(); ++v) {
            error = std::max(error, std::abs(logits[i * want.size() + v] - want[v]));
            size = std::max(size, std::abs(want[v]));
          }
          worst = std::max(worst, error / size);
        }
      }
      EXPECT_LE(worst, bound) << name << (portable ? ", portable" : "") << ", chunks of " << chunk;
      ::testing::Test::RecordProperty(name, std::to_string(worst));
    }
}

// GELU's table makes steps of 5e-4 of one value in a row.
TEST(PlainModelTest, GptJ) {
  check("tiny-gptj", gpt_j, 5e-4);
}
TEST(PlainModelTest, Opt) {
  check("tiny-opt", opt, 1e-5);
}
TEST(PlainModelTest, LlamaWithoutPositions) {
  check("tiny-nope", llama_without_positions, 1e-5);
}
TEST(PlainModelTest, MptWithNormedQueries) {
  check("tiny-mpt", mpt, 5e-4);
}

}  // namespace
}  // namespace palimpsest
