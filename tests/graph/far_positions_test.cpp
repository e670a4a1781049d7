// A million positions (long form: ten millions), and positions beyond 2^40: a sinks + window cache whose keys are
// rotated once, on insert, gives the same as rotating every key at its rank in double precision. Rounding errors do not
// accumulate.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>
#include <stdexcept>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/step.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kQueryHeads = 4, kKvHeads = 2, kDim = 16, kSinks = 4, kKeptTokens = 64, kWindow = kKeptTokens - kSinks;
constexpr double kMaxDifference = 1e-5;

using Floats = std::vector<float>;

struct Token {
  Position position;
  int slot;
  Floats k, v;  // unrotated, of all KV heads; empty: not written
};

class Stream {
 public:
  Stream(RopeKind kind, double base)
      : hyper_(shape(kind, base)), step_(hyper_), cache_(options()), rule_{.two_query = true, .sinks = kSinks} {
    rule_.window = kWindow;
  }

  // Inserts `count` tokens without keys and values and evicts the oldest.
  void skip(Position count) {
    for (; count > 0; --count) {
      evict(kKeptTokens - 1);
      insert(1);
    }
  }
  void jump(Position to) { cache_.set_next(to); }
  Position next() const { return cache_.next(); }

  // Inserts `count` tokens as a chunk; returns the largest error of their attention outputs. `compare`: all tokens that
  // they see have keys and values.
  double attend(int count = 1, bool compare = true) {
    evict(kKeptTokens - 1);
    insert(count);
    const Floats q = normal(count * kQueryHeads), k = normal(count * kKvHeads), v = normal(count * kKvHeads);
    for (int i = 0; i < count; ++i) {
      Token& token = live_[live_.size() - static_cast<std::size_t>(count - i)];
      token.k = row(k, i, kKvHeads);
      token.v = row(v, i, kKvHeads);
    }
    const std::vector<TokenId> ids(static_cast<std::size_t>(count), 0);
    const SequenceStep sequence{.cache = &cache_, .rule = rule_, .tokens = ids};
    step_.prepare({&sequence, 1});
    LayerStep step = step_.attention(0);
    Floats out(q.size());
    step.q = {q.data(), kQueryHeads * kDim, kDim};
    step.k = {k.data(), kKvHeads * kDim, kDim};
    step.v = {v.data(), kKvHeads * kDim, kDim};
    step.out = {out.data(), kQueryHeads * kDim, kDim};
    scratch_.reserve(step, 1);
    attention_cpu(step, scratch_, 0, 1);

    double worst = 0;
    for (int i = 0; i < count && compare; ++i)
      for (int head = 0; head < kQueryHeads; ++head) {
        const std::size_t at = static_cast<std::size_t>((i * kQueryHeads + head) * kDim);
        const auto expected = truth(next() - count + i, head, &q[at]);
        for (std::size_t d = 0; d < kDim; ++d) worst = std::max(worst, std::abs(expected[d] - out[at + d]));
      }
    evict(kKeptTokens);
    return worst;
  }

 private:
  static Hyperparameters shape(RopeKind kind, double base) {
    Hyperparameters h;
    h.vocabulary = 1;
    h.layers = 1;
    h.geometry =
        HeadGeometry({{.kv_heads = kKvHeads, .query_heads = kQueryHeads, .key_width = kDim, .value_width = kDim}});
    h.attention_scale = 1 / std::sqrt(static_cast<float>(kDim));
    h.rope.kind = kind;
    h.rope.dims = kDim;
    h.rope.base = base;
    return h;
  }
  static CacheOptions options() {
    CacheOptions o{.geometry = HeadGeometry::uniform(1, kKvHeads, kDim, kDim, CacheType::kF32)};
    o.page_size = 16;
    return o;
  }

  void evict(std::size_t keep) {
    plan_.drop.resize(1);
    plan_.drop[0].clear();
    while (live_.size() > keep) {
      plan_.drop[0].push_back(live_[kSinks].slot);
      live_.erase(live_.begin() + kSinks);
    }
    cache_.apply(plan_);
  }
  void insert(int count) {
    Position position = next();
    cache_.insert(count);
    for (const int slot : cache_.table(0).inserted()) live_.push_back({position++, slot, {}, {}});
  }

  Floats normal(int rows) {
    std::normal_distribution<float> any(0, 1);
    Floats out(static_cast<std::size_t>(rows * kDim));
    for (float& x : out) x = any(random_);
    return out;
  }
  static Floats row(const Floats& rows, int token, int heads) {
    const auto begin = rows.begin() + token * heads * kDim;
    return {begin, begin + heads * kDim};
  }

  // x rotated at a rank: ranks are small, so the angle has the full precision of a double.
  std::vector<double> turned(const float* x, int rank) const {
    std::vector<double> out(x, x + kDim);
    constexpr std::size_t kPairs = kDim / 2;
    for (std::size_t i = 0; i < kPairs; ++i) {
      const double angle = rank * std::pow(hyper_.rope.base, -2.0 * static_cast<double>(i) / kDim);
      double& a = out[hyper_.rope.kind == RopeKind::kHalves ? i : 2 * i];
      double& b = out[hyper_.rope.kind == RopeKind::kHalves ? i + kPairs : 2 * i + 1];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
    return out;
  }

  std::vector<double> truth(Position now, int head, const float* query) const {
    std::vector<const Token*> seen;
    for (const Token& token : live_)
      if (token.position <= now && (token.position < kSinks || token.position > now - kWindow)) seen.push_back(&token);
    const auto q = turned(query, static_cast<int>(seen.size()) - 1);
    const int at = head / (kQueryHeads / kKvHeads) * kDim;
    std::vector<double> weight, out(kDim, 0.0);
    double largest = -INFINITY, sum = 0;
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
      if (seen[rank]->k.empty()) throw std::logic_error("the test did not write a token that it compares");
      const auto k = turned(&seen[rank]->k[static_cast<std::size_t>(at)], static_cast<int>(rank));
      double dot = 0;
      for (std::size_t d = 0; d < kDim; ++d) dot += q[d] * k[d];
      weight.push_back(dot * static_cast<double>(hyper_.attention_scale));
      largest = std::max(largest, weight.back());
    }
    for (double& w : weight) sum += w = std::exp(w - largest);
    for (std::size_t rank = 0; rank < seen.size(); ++rank)
      for (std::size_t d = 0; d < kDim; ++d)
        out[d] += weight[rank] / sum * static_cast<double>(seen[rank]->v[static_cast<std::size_t>(at) + d]);
    return out;
  }

  Hyperparameters hyper_;
  Step step_;
  Cache cache_;
  AttentionRule rule_;
  AttentionScratch scratch_;
  Victims plan_;
  std::deque<Token> live_;  // oldest first
  std::mt19937 random_{1};
};

struct Rope {
  RopeKind kind;
  double base;
};

class FarPositions : public ::testing::TestWithParam<Rope> {
 protected:
  // Writes a window of tokens, one by one or in chunks, before outputs are compared.
  static double error_here(Stream& stream, int chunk) {
    double worst = 0;
    for (int i = 0; i < kWindow; i += chunk) stream.attend(chunk, false);
    for (int i = 0; i < 8; ++i) worst = std::max(worst, stream.attend(chunk));
    return worst;
  }
};

TEST_P(FarPositions, MillionsWithoutDrift) {
  const Position kFar = test_length<Position>(1'000'000, 10'000'000, 200'000);
  Stream stream(GetParam().kind, GetParam().base);
  double near = 0, far = 0, worst = 0;
  for (int i = 0; i < kSinks + 200; ++i) near = std::max(near, stream.attend());
  constexpr int kSamples = 40;
  for (int sample = 1; sample <= kSamples; ++sample) {
    const Position at = kFar * sample / kSamples;
    stream.skip(at - stream.next());
    far = error_here(stream, sample % 2 == 0 ? 1 : 12);
    worst = std::max(worst, far);
    ASSERT_LT(far, kMaxDifference) << "at " << stream.next();
  }
  EXPECT_LT(near, kMaxDifference);
  EXPECT_GE(stream.next(), kFar);
  RecordProperty("worst_error", std::to_string(worst));
  std::printf("largest error of an output: %.1e in the first 200 positions, %.1e up to position %lld\n", near, worst,
              static_cast<long long>(stream.next()));
}

TEST_P(FarPositions, TwoToTheThirtyFirstAndBeyond) {
  Stream stream(GetParam().kind, GetParam().base);
  for (int i = 0; i < kSinks + 200; ++i) stream.attend();
  double worst = 0;
  for (const Position to : {Position{1} << 24, Position{1} << 30, Position{1} << 31, Position{1} << 40}) {
    stream.jump(to - 100);
    for (int i = 0; i < kWindow; ++i) stream.attend(1, false);
    for (int i = 0; i < 200; ++i) worst = std::max(worst, stream.attend());
    ASSERT_GT(stream.next(), to);
    ASSERT_LT(worst, kMaxDifference) << "at " << to;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FarPositions,
                         ::testing::Values(Rope{RopeKind::kPairs, 10000}, Rope{RopeKind::kHalves, 500000}));

}  // namespace
}  // namespace palimpsest::testing
