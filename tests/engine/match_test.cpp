// Mechanism match: one head's fit in a cache, against plain loops in double precision; whole sessions.
#include "palimpsest/engine/mechanism/match.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "palimpsest/engine/mechanism/query_statistics.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {
namespace {

constexpr int kHeads = 2, kGroup = 3, kDim = 16, kValue = 8;

// What of a model changes the scores.
struct Kind {
  const char* name;
  bool rotary = true;
  float soft_cap = 0;
  bool alibi = false, sinks = false, factors = false, chunked = false;
  std::int32_t window = INT32_MAX;
};

Hyperparameters hyper_of(const Kind& kind) {
  Hyperparameters hyper;
  hyper.layers = 1;
  hyper.attention_scale = 0.3F;
  hyper.attention_soft_cap = kind.soft_cap;
  if (kind.alibi) hyper.alibi = alibi_slopes(kHeads * kGroup, 8);
  if (kind.sinks) hyper.sink_logits = {std::vector<float>(kHeads * kGroup, 0.7F)};
  if (kind.factors) hyper.query_factors = {std::vector<float>(kDim, 1.3F)};
  hyper.rope.kind = kind.rotary ? RopeKind::kHalves : RopeKind::kNone;
  hyper.rope.dims = kind.rotary ? 12 : 0;
  return hyper;
}

// A cache of random keys and values, and random queries at all positions.
struct Heads {
  Hyperparameters hyper;
  ReferenceQueries references{20};
  RopeFrequencies rope;
  Cache cache;
  std::mt19937 random{7};
  std::vector<std::vector<float>> queries;  // [head * group + member][position][dim]

  explicit Heads(const Kind& kind, CacheType type = CacheType::kF32)
      : hyper(hyper_of(kind)),
        rope(hyper.rope),
        cache({.geometry = HeadGeometry({{.kv_heads = kHeads,
                                          .query_heads = kHeads * kGroup,
                                          .key_width = kDim,
                                          .value_width = kValue,
                                          .key_type = type,
                                          .value_type = type,
                                          .window = kind.window,
                                          .chunked = kind.chunked}}),
               .page_size = 16,
               .mechanism = Mechanism::kMatch,
               .shared = false,
               .columns = 1,
               .head_floats = static_cast<int>(kGroup * references.floats(kDim))}),
        queries(kHeads * kGroup) {}

  std::span<const RopeFrequencies> frequencies() const {
    return rope.pairs() > 0 ? std::span(&rope, 1) : std::span<const RopeFrequencies>();
  }
  std::vector<float> row(int width) {
    std::normal_distribution<float> normal;
    std::vector<float> out;
    for (int d = 0; d < width; ++d) out.push_back(normal(random));
    return out;
  }
  std::vector<double> rotated(std::span<const float> from, Position position) const {
    std::vector<double> out(from.begin(), from.end());
    for (int p = 0; p < rope.pairs(); ++p) {
      double &a = out[static_cast<std::size_t>(p)], &b = out[static_cast<std::size_t>(p + rope.pairs())];
      const double c = std::cos(rope.angle(position, p)), s = std::sin(rope.angle(position, p)), x = a * c - b * s;
      b = a * s + b * c;
      a = x;
    }
    return out;
  }
  void insert(int count) {
    const Position first = cache.next();
    cache.insert(count);
    for (int h = 0; h < kHeads; ++h) {
      for (const int slot : cache.table(h).inserted()) {
        const auto key = rotated(row(kDim), cache.table(h).position(slot));
        std::byte* const page = cache.head(h).page[slot / 16];
        store_key(cache.view(0), page, slot % 16, std::vector<float>(key.begin(), key.end()).data());
        store_value(cache.view(0), page, slot % 16, row(kValue).data());
      }
      for (int g = 0; g < kGroup; ++g) {
        auto& all = queries[static_cast<std::size_t>(h * kGroup + g)];
        for (int i = 0; i < count; ++i)
          for (const float x : row(kDim)) all.push_back(x);
        const auto floats = references.floats(kDim);
        keep_references({all.data() + first * kDim, count, kDim, kDim}, first,
                        reference_queries(cache, h, references).subspan(static_cast<std::size_t>(g) * floats, floats));
      }
    }
  }
  // The outputs of a query head at the last positions, over these slots.
  std::vector<double> outputs(int h, int g, const std::vector<int>& slots, std::span<const float> bias) const {
    const LayerGeometry& layer = cache.geometry().layer(0);
    std::vector<double> all;
    const int head = h * kGroup + g;
    for (Position now = std::max<Position>(0, cache.next() - references.queries); now < cache.next(); ++now) {
      const auto& of_head = queries[static_cast<std::size_t>(head)];
      const auto q = rotated({of_head.data() + now * kDim, kDim}, now);
      double sum = hyper.sink_logits.empty() ? 0 : std::exp(0.7);
      std::vector<double> out(kValue, 0);
      for (const int slot : slots) {
        const Position position = cache.table(h).position(slot);
        const bool seen = layer.window == INT32_MAX || (layer.chunked ? position / layer.window == now / layer.window
                                                                      : position > now - layer.window);
        if (position > now || !seen) continue;
        const std::byte* const page = cache.head(h).page[slot / 16];
        const auto k = key_in(cache.view(0), page, slot % 16), v = value_in(cache.view(0), page, slot % 16);
        double score = 0;
        for (std::size_t d = 0; d < kDim; ++d) score += q[d] * k[d] * (hyper.query_factors.empty() ? 1 : 1.3);
        score *= double{hyper.attention_scale};
        if (hyper.attention_soft_cap > 0)
          score = hyper.attention_soft_cap * std::tanh(score / hyper.attention_soft_cap);
        if (!hyper.alibi.empty())
          score -= double{hyper.alibi[static_cast<std::size_t>(head)]} * static_cast<double>(now - position);
        const double weight = std::exp(score + bias[static_cast<std::size_t>(slot)]);
        sum += weight;
        for (std::size_t d = 0; d < kValue; ++d) out[d] += weight * v[d];
      }
      for (const double x : out) all.push_back(sum > 0 ? x / sum : 0);
    }
    return all;
  }
  std::vector<int> slots(int h, bool kept) {  // a third of the older tokens stays
    std::vector<int> out;
    const Position next = cache.next();
    for (int slot = 0; slot < cache.table(h).slots(); ++slot) {
      const Position p = cache.table(h).position(slot);
      if (p != kNoPosition && (p % 3 == h || p >= next - 8 || p == 0) == kept) out.push_back(slot);
    }
    return out;
  }
  static double difference(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
  }
  // Evicts, and returns the sums of squares that dropping alone and the fit differ by from what was.
  std::pair<double, double> evict(const FitOptions& options = {}) {
    std::vector<std::vector<double>> before, dropped;
    Victims plan;
    for (int h = 0; h < kHeads; ++h) {
      plan.drop.push_back(slots(h, false));
      std::vector<int> all = slots(h, true), kept = all;
      all.insert(all.end(), plan.drop.back().begin(), plan.drop.back().end());
      for (int g = 0; g < kGroup; ++g) {
        before.push_back(outputs(h, g, all, cache.biases(h)));
        dropped.push_back(outputs(h, g, kept, cache.biases(h)));
      }
    }
    match_kept(cache, plan, references, ScoreRule(hyper), frequencies(), nullptr, nullptr, options);
    cache.apply(plan);
    std::pair<double, double> errors;
    for (int h = 0; h < kHeads; ++h)
      for (int g = 0; g < kGroup; ++g) {
        const auto i = static_cast<std::size_t>(h * kGroup + g);
        std::vector<int> there;
        for (int slot = 0; slot < cache.table(h).slots(); ++slot)
          if (cache.table(h).position(slot) != kNoPosition) there.push_back(slot);
        const SlotsView& view = *cache.head(h).slots;  // as the kernels see it
        errors.first += difference(before[i], dropped[i]);
        errors.second += difference(before[i], outputs(h, g, there, {view.bias, static_cast<std::size_t>(view.slots)}));
      }
    return errors;
  }
};

const Kind kKinds[] = {{.name = "rotary"},
                       {.name = "no rotation", .rotary = false},
                       {.name = "soft cap", .soft_cap = 2},
                       {.name = "ALiBi", .rotary = false, .alibi = true},
                       {.name = "sink logits", .sinks = true},
                       {.name = "query factors", .factors = true},
                       {.name = "window", .window = 50},
                       {.name = "chunks", .chunked = true, .window = 64}};

// After a prompt, and after each of later evictions, which fit again: closer to what was there than dropping alone.
TEST(Match, FitsTheReferenceQueries) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Heads heads(kind);
    heads.insert(150);
    for (int eviction = 0; eviction < 5; ++eviction) {
      const auto [dropped, fitted] = heads.evict();
      EXPECT_GT(dropped, 0.1);
      EXPECT_LT(fitted, 0.5 * dropped) << eviction;
      for (int i = 0; i < 16; ++i) heads.insert(1);
    }
  }
}

// Values rounded to the cache's type.
TEST(Match, OfEveryElementType) {
  for (const CacheType type : {CacheType::kF16, CacheType::kBF16}) {
    Heads heads(kKinds[0], type);
    heads.insert(150);
    const auto [dropped, fitted] = heads.evict();
    EXPECT_LT(fitted, 0.5 * dropped);
  }
}

// Queries of tokens that were rewound do not count, nor those never read.
TEST(Match, ReadsOnlyQueriesOfTheText) {
  std::vector<float> ring(ReferenceQueries{4}.floats(1), 0);
  const std::vector<float> rows = {10, 11, 12, 13, 14, 15, 16};
  for (Position p = 0; p < 9; ++p) EXPECT_TRUE(reference_at(ring, 1, p).empty());
  keep_references({rows.data(), 7, 1, 1}, 10, ring);
  for (Position p = 0; p < 20; ++p) {
    EXPECT_EQ(reference_at(ring, 1, p).empty(), p < 13 || p > 16) << p;
    if (p < 13 || p > 16) continue;
    EXPECT_EQ(reference_at(ring, 1, p)[0], static_cast<float>(p));
  }
  keep_references({rows.data(), 1, 1, 1}, 14, ring);  // rewound to 14
  EXPECT_EQ(reference_at(ring, 1, 14)[0], 10);
  EXPECT_EQ(reference_at(ring, 1, 13)[0], 13);
  EXPECT_TRUE(reference_at(ring, 1, 12).empty());  // its row held another: not read
  EXPECT_TRUE(reference_at(ring, 1, 11).empty());
}

std::shared_ptr<Decoder> match_decoder() {
  static const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                                                    .width = 32,
                                                                                    .layers = 2,
                                                                                    .feed_forward = 32,
                                                                                    .query_heads = 4,
                                                                                    .kv_heads = 2,
                                                                                    .head_dim = 16})),
                                                        1);
  return decoder;
}

// Logits of a text of 120 tokens and 40 more, the distance from those of a cache that evicts nothing.
double distance(const std::string& method) {
  Session whole(match_decoder(), session_options("full", 32)), some(match_decoder(), session_options(method, 32));
  const auto prompt = random_tokens(120, 3), more = random_tokens(40, 4);
  whole.prefill(prompt);
  some.prefill(prompt);
  double sum = 0;
  for (const TokenId token : more) {
    const auto logits = whole.decode(token);  // of the decoder, which both share
    const std::vector<float> a(logits.begin(), logits.end());
    const auto b = some.decode(token);
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return sum;
}

// Nothing is evicted: as the method without matching, to the bit. Else nearer to the whole cache than that.
TEST(Match, OfWholeSessions) {
  EXPECT_EQ(distance("snapkv:budget=500,mechanism=match"), 0);
  for (const char* policy : {"snapkv", "keydiff", "h2o", "knorm", "recent", "random", "tova"}) {
    const std::string method = std::string("sparse:recent=16,sinks=4,budget=48,policy=") + policy;
    EXPECT_LT(distance(method + ",schedule=prompt,mechanism=match"), distance(method + ",schedule=prompt")) << policy;
  }
}

TEST(Match, RefusesWhatItCannotDo) {
  const auto error = [](const std::string& method) {
    return error_of([&] { Session(match_decoder(), session_options(method)); });
  };
  EXPECT_NE(error("h2o:mechanism=match").find("every=16"), std::string::npos);
  EXPECT_NE(error("streaming:mechanism=match,every=16").find("positions=original"), std::string::npos);
  EXPECT_NE(error("full:mechanism=match").find("policy"), std::string::npos);
  EXPECT_THROW(parse_method("snapkv:references=0"), Error);
  EXPECT_THROW(parse_method("snapkv:references=257"), Error);
  EXPECT_NO_THROW(Session(match_decoder(), session_options("h2o:mechanism=match,every=16")));
}

}  // namespace
}  // namespace palimpsest::testing
