// Families and features that libllama has no graph for, against their formulas in double precision: plain loops over
// whole sequences, no cache, no graph (tests/support/plain_model). GPT-J: github.com/kingoflolz/mesh-transformer-jax;
// OPT: arXiv 2205.01068; MPT's norm of queries and keys; Llama without rotary positions (EQUIP, table 4).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/plain_model.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

// ggml's GELU is an f16 table: input and output are rounded to f16.
double gelu(double x) {
  const double in = ggml_fp16_to_fp32(ggml_fp32_to_fp16(static_cast<float>(x)));
  const double out = 0.5 * in * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * in * (1 + 0.044715 * in * in)));
  return ggml_fp16_to_fp32(ggml_fp32_to_fp16(static_cast<float>(out)));
}
double relu(double x) {
  return std::max(x, 0.0);
}
// Attention and feed-forward read the same normed x.
Matrix gpt_j(const Plain& m, const std::vector<TokenId>& tokens) {
  Matrix x = m.embedded(tokens);
  for (int i = 0; i < m.hyper().layers; ++i) {
    const std::string b = block(i);
    const Matrix in = m.norm(x, b + "attn_norm", true);
    const Matrix q = m.turned(m.linear(in, b + "attn_q"), m.hyper().geometry.layer(i).query_heads);
    const Matrix k = m.turned(m.linear(in, b + "attn_k"), m.hyper().geometry.layer(i).kv_heads);
    const Matrix a = m.linear(m.attention(q, k, m.linear(in, b + "attn_v")), b + "attn_output");
    const Matrix f = m.linear(Plain::map(m.linear(in, b + "ffn_up"), gelu), b + "ffn_down");
    x = Plain::plus(Plain::plus(x, a), f);
  }
  return m.linear(m.norm(x, "output_norm", true), "output");
}

Matrix opt(const Plain& m, const std::vector<TokenId>& tokens) {
  Matrix x = m.embedded(tokens);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = Plain::plus({x[i]}, {m.row("position_embd.weight", static_cast<std::int64_t>(i))})[0];
  for (int i = 0; i < m.hyper().layers; ++i) {
    const std::string b = block(i);
    const Matrix in = m.norm(x, b + "attn_norm", true);
    const Matrix a = m.attention(m.linear(in, b + "attn_q"), m.linear(in, b + "attn_k"), m.linear(in, b + "attn_v"));
    x = Plain::plus(x, m.linear(a, b + "attn_output"));
    const Matrix f = Plain::map(m.linear(m.norm(x, b + "ffn_norm", true), b + "ffn_up"), relu);
    x = Plain::plus(x, m.linear(f, b + "ffn_down"));
  }
  return m.linear(m.norm(x, "output_norm", true), "token_embd");
}

// Queries and keys are normed over all heads; the packed QKV product is clamped at 2. Slopes for six heads by the
// paper's rule: those of four heads, then every other of eight.
Matrix mpt(const Plain& m, const std::vector<TokenId>& tokens) {
  const double slopes[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  const auto width = static_cast<std::size_t>(m.hyper().width);
  Matrix x = m.embedded(tokens);
  for (int i = 0; i < m.hyper().layers; ++i) {
    const std::string b = block(i);
    const Matrix all = Plain::map(m.linear(m.norm(x, b + "attn_norm", true), b + "attn_qkv"),
                                  [](double v) { return std::clamp(v, -2.0, 2.0); });
    const Matrix q = m.norm(Plain::columns(all, 0, width), b + "attn_q_norm", true);
    const Matrix k = m.norm(Plain::columns(all, width, width), b + "attn_k_norm", true);
    const Matrix a = m.attention(q, k, Plain::columns(all, 2 * width, width),
                                 [&](int head, double distance) { return -slopes[head] * distance; });
    x = Plain::plus(x, m.linear(a, b + "attn_output"));
    const Matrix f = Plain::map(m.linear(m.norm(x, b + "ffn_norm", true), b + "ffn_up"), gelu);
    x = Plain::plus(x, m.linear(f, b + "ffn_down"));
  }
  return m.linear(m.norm(x, "output_norm", true), "token_embd");
}

// The largest error of a logit, relative to the token's largest logit. `chunk`: tokens per step.
double worst_error(Decoder& decoder, CacheTypes types, const std::vector<TokenId>& tokens, const Matrix& expected,
                   std::size_t chunk) {
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(types.key, types.value);
  Cache cache(options);
  double worst = 0;
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    const auto part = std::span(tokens).subspan(first, std::min(chunk, tokens.size() - first));
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
  return worst;
}

// 200 tokens at once, in chunks and one by one. `bound`: relative to the largest logit.
void check(const std::string& name, const SyntheticShape& shape,
           Matrix (*truth)(const Plain&, const std::vector<TokenId>&), double bound) {
  const std::vector<TokenId> tokens = random_tokens(200, 5, shape.vocabulary);
  const Matrix expected = truth(Plain(Model::from(make_synthetic(shape))->hyper(), make_synthetic(shape)), tokens);
  for (const bool portable : {false, true})
    for (const std::size_t chunk : {1, 64, 200}) {
      Decoder decoder(Model::from(make_synthetic(shape), {.portable = portable}), 1);
      const double worst = worst_error(decoder, CacheType::kF32, tokens, expected, chunk);
      EXPECT_LE(worst, bound) << name << (portable ? ", portable" : "") << ", chunks of " << chunk;
      ::testing::Test::RecordProperty(name, std::to_string(worst));
    }
}

void check(const std::string& name, Matrix (*truth)(const Plain&, const std::vector<TokenId>&), double bound) {
  check(name, parse_synthetic(name + "@vocab=300@context=256"), truth, bound);
}

// The GELU table has steps of 5e-4.
TEST(PlainModelTest, GptJ) {
  check("tiny-gptj", gpt_j, 5e-4);
}
// Layers of Nemotron-NAS (`deci`): fewer heads, one product instead of attention, no attention, no feed-forward,
// neither. (libllama omits the attention of a layer without feed-forward, and differs on the product instead of
// attention.)
TEST(PlainModelTest, DeciWithAttentionAlone) {
  SyntheticShape shape = parse_synthetic("tiny-deci@vocab=300@context=256");
  shape.kv_heads_of = {4, 0, 0, 2, 0, 1};
  shape.feed_forward_of = {512, 0, 384, 0, 0, 512};
  check("tiny-deci", shape, plain_llama, 1e-5);
}
// All pairs of key and value types: logits differ by at most the step of the coarser type.
TEST(PlainModelTest, EveryPairOfCacheTypes) {
  const auto bound_of = [](CacheType type) {
    return type == CacheType::kF32    ? 1e-5
           : type == CacheType::kF16  ? 2e-3
           : type == CacheType::kBF16 ? 2e-2
           : type == CacheType::kQ8_0 ? 6e-2
           : type == CacheType::kQ3   ? 0.9
           : type == CacheType::kQ2   ? 1.4
                                      : 0.6;
  };
  constexpr auto& kAll = kCacheTypes;
  const SyntheticShape shape = parse_synthetic("tiny-deci@vocab=300@context=256");
  const std::vector<TokenId> tokens = random_tokens(100, 5, shape.vocabulary);
  const Matrix expected =
      plain_llama(Plain(Model::from(make_synthetic(shape))->hyper(), make_synthetic(shape)), tokens);
  for (const bool portable : {false, true}) {
    Decoder decoder(Model::from(make_synthetic(shape), {.portable = portable}), 1);
    for (const CacheType key : kAll)
      for (const CacheType value : kAll)
        for (const std::size_t chunk : {1, 64}) {
          const CacheTypes types(key, value);
          if (portable && (!kv_format(key).elementwise() || !kv_format(value).elementwise())) continue;
          const double worst = worst_error(decoder, types, tokens, expected, chunk);
          EXPECT_LE(worst, std::max(bound_of(key), bound_of(value)))
              << name_of(types) << (portable ? ", portable" : "") << ", chunks of " << chunk;
          ::testing::Test::RecordProperty(fmt::format("{} {} {}", name_of(types), portable, chunk),
                                          fmt::format("{:.2e}", worst));
        }
  }
}
TEST(PlainModelTest, Opt) {
  check("tiny-opt", opt, 1e-5);
}
TEST(PlainModelTest, LlamaWithoutPositions) {
  check("tiny-nope", plain_llama, 1e-5);
}
TEST(PlainModelTest, MptWithNormedQueries) {
  check("tiny-mpt", mpt, 5e-4);
}

}  // namespace
}  // namespace palimpsest::testing
