// The oracle against cases computed by hand.
#include "palimpsest/attention/reference.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "palimpsest/cache/view.h"

namespace palimpsest::testing {
namespace {

// One sequence, one KV head, one page of 16 slots, keys of two dimensions, values of one; f32.
struct Tiny {
  std::vector<std::byte> page = std::vector<std::byte>(16 * 3 * 4);
  PageId pages[1] = {0};
  std::array<std::int32_t, 16> relative, rank;
  SlotsView slots;
  HeadPages head;
  LayerView layer;
  SequenceTokens tokens;
  LayerStep step;
  std::vector<float> q, k, v, out, weights;
  float* weights_of[1];

  Tiny() {
    relative.fill(kEmptySlot);
    rank.fill(-1);
    slots.relative = relative.data();
    slots.rank = rank.data();
    slots.slots = 16;
    head = {{pages, page.data()}, &slots};
    layer = {&head, 1, 2, 1, 16, CacheType::kF32, CacheType::kF32};
    step.shape = {1, 1, 2, 1, 1.0f, RopeKind::kNone, 0};
    step.cache = &layer;
    step.tokens = &tokens;
    step.sequences = 1;
    weights.assign(16, -1);
    weights_of[0] = weights.data();
    step.weights = weights_of;
  }
  void put(int slot, std::int32_t at, float k0, float k1, float value) {
    relative[slot] = at;
    kv_format(CacheType::kF32).store(page.data(), key_index(layer, slot, 0), k0);
    kv_format(CacheType::kF32).store(page.data(), key_index(layer, slot, 1), k1);
    kv_format(CacheType::kF32).store(page.data() + value_offset(layer), value_index(layer, slot), value);
  }
  void attend(int queries, const std::int32_t* at, int weights_queries = INT32_MAX) {
    tokens.count = queries;
    tokens.weights_queries = weights_queries;
    tokens.relative = at;
    out.assign(queries * step.shape.query_heads, -1);
    step.q = {q.data(), 2 * step.shape.query_heads, 2};
    step.out = {out.data(), step.shape.query_heads, 1};
    attend_reference(step);
  }
};

TEST(Reference, SoftmaxOfTwoKeys) {
  Tiny t;
  t.put(5, 0, std::log(3.0f), 0, 10);
  t.put(2, 1, 0, 7, 20);
  t.q = {1, 0};
  const std::int32_t now = 2;
  t.attend(1, &now);
  EXPECT_FLOAT_EQ(t.out[0], 0.75f * 10 + 0.25f * 20);
  EXPECT_FLOAT_EQ(t.weights[5], 0.75f);
  EXPECT_FLOAT_EQ(t.weights[2], 0.25f);
  EXPECT_EQ(t.weights[0], 0);
}

TEST(Reference, QueriesSeeThePastTheirWindowAndTheSinks) {
  Tiny t;
  for (int i = 0; i < 6; ++i) t.put(i, i, 0, 0, static_cast<float>(1 << i));
  t.q.assign(6, 0);
  const std::int32_t at[] = {1, 3, 5};
  t.attend(3, at);
  EXPECT_FLOAT_EQ(t.out[0], (1 + 2) / 2.0f);
  EXPECT_FLOAT_EQ(t.out[1], (1 + 2 + 4 + 8) / 4.0f);
  EXPECT_FLOAT_EQ(t.out[2], 63 / 6.0f);
  t.tokens.window = 2;
  t.attend(3, at);
  EXPECT_FLOAT_EQ(t.out[2], (16 + 32) / 2.0f);
  t.tokens.sink_end = 1;
  t.attend(3, at);
  EXPECT_FLOAT_EQ(t.out[2], (1 + 16 + 32) / 3.0f);
  EXPECT_FLOAT_EQ(t.out[0], (1 + 2) / 2.0f);
}

// The layer's attention window hides sinks, too, and counts positions.
TEST(Reference, ALayersOwnWindow) {
  Tiny t;
  for (int i : {0, 1, 4, 5}) t.put(i, i, 0, 0, static_cast<float>(1 << i));
  t.q.assign(4, 0);
  t.tokens.window = 4;
  t.tokens.sink_end = 1;
  const std::int32_t at[] = {4, 5};
  t.attend(2, at);
  EXPECT_FLOAT_EQ(t.out[1], (1 + 16 + 32) / 3.0f);
  t.step.local = 4;
  t.attend(2, at);
  EXPECT_FLOAT_EQ(t.out[0], (2 + 16) / 2.0f);
  EXPECT_FLOAT_EQ(t.out[1], (16 + 32) / 2.0f);
  t.step.local = 1;
  t.attend(2, at);
  EXPECT_FLOAT_EQ(t.out[1], 32);
}

TEST(Reference, SoftCap) {
  Tiny t;
  t.put(0, 0, 4, 0, 0);
  t.put(1, 1, -1, 0, 1);
  t.q = {2, 0};
  t.step.shape.scale = 0.5f;  // scores 4 and -1
  t.step.shape.soft_cap = 3;
  const float slope = 0.25f;
  t.step.shape.alibi = &slope;  // not capped
  const std::int32_t now = 1;
  t.attend(1, &now);
  const double difference = 3 * std::tanh(4 / 3.0) - 0.25 - 3 * std::tanh(-1 / 3.0);
  EXPECT_FLOAT_EQ(t.weights[0], static_cast<float>(1 / (1 + std::exp(-difference))));
}

// exp(sink) joins the denominator; a query that sees no slot still gives 0.
TEST(Reference, SinkLogits) {
  Tiny t;
  t.step.shape.query_heads = 2;
  const float sinks[] = {std::log(3.0f), -INFINITY};
  t.step.shape.sink_logits = sinks;
  t.put(3, 1, 0, 0, 8);
  t.q = {0, 0, 0, 0, 0, 0, 0, 0};
  const std::int32_t at[] = {0, 1};
  t.attend(2, at, 1);
  EXPECT_EQ(t.out[0], 0);
  EXPECT_EQ(t.out[1], 0);
  EXPECT_FLOAT_EQ(t.out[2], 2);
  EXPECT_FLOAT_EQ(t.out[3], 8);
  EXPECT_FLOAT_EQ(t.weights[3], (0.25f + 1) / 2);
}

// A slot's bias is added after the cap; -infinity hides the slot.
TEST(Reference, BiasesOfSlots) {
  Tiny t;
  for (int i = 0; i < 3; ++i) t.put(i, i, 0, 0, static_cast<float>(i));
  std::array<float, 16> bias;
  bias.fill(NAN);
  bias[0] = std::log(3.0f);
  bias[1] = 0;
  bias[2] = -INFINITY;
  t.slots.bias = bias.data();
  t.step.shape.soft_cap = 0.5f;
  t.q = {0, 0};
  const std::int32_t now = 2;
  t.attend(1, &now);
  EXPECT_FLOAT_EQ(t.weights[0], 0.75f);
  EXPECT_FLOAT_EQ(t.weights[1], 0.25f);
  EXPECT_EQ(t.weights[2], 0);
  EXPECT_FLOAT_EQ(t.out[0], 0.25f);
  bias[0] = bias[1] = -INFINITY;
  t.attend(1, &now);
  EXPECT_EQ(t.out[0], 0);
  EXPECT_EQ(t.weights[0], 0);
}

TEST(Reference, WeightsAreTheMeanOverTheGroupAndTheSumOverTheLastQueries) {
  Tiny t;
  t.step.shape.query_heads = 2;
  t.put(0, 0, std::log(3.0f), 0, 0);
  t.put(1, 1, 0, 0, 0);
  t.q = {0, 0, 1, 0, 0, 0, 1, 0};  // [query][head][2]
  const std::int32_t at[] = {0, 1};
  t.attend(2, at);
  EXPECT_FLOAT_EQ(t.weights[0], 1 + (0.5f + 0.75f) / 2);
  EXPECT_FLOAT_EQ(t.weights[1], (0.5f + 0.25f) / 2);
  t.attend(2, at, 1);
  EXPECT_FLOAT_EQ(t.weights[0], (0.5f + 0.75f) / 2);
}

// A slope of ln 2 halves a weight with every step of distance.
TEST(Reference, AlibiCountsPositionsOrRanks) {
  Tiny t;
  const float slope = std::log(2.0f);
  t.step.shape.alibi = &slope;
  const std::int32_t relative[] = {0, 6, 8}, now = 8;  // the last is the query's own
  for (int i = 0; i < 3; ++i) {
    t.put(i, relative[i], 0, 0, static_cast<float>(i));
    t.rank[i] = i;
  }
  t.slots.occupied = 3;
  t.q = {0, 0};
  t.attend(1, &now);
  EXPECT_FLOAT_EQ(t.weights[1] / t.weights[2], 0.25f);
  EXPECT_FLOAT_EQ(t.weights[0] / t.weights[2], 0x1p-8f);
  t.tokens.rank_distance = true;
  t.attend(1, &now);
  EXPECT_FLOAT_EQ(t.weights[1] / t.weights[2], 0.5f);
  EXPECT_FLOAT_EQ(t.weights[0] / t.weights[2], 0.25f);
  // With a mask: the sink and a window of one, so the sink's distance is one.
  t.tokens.window = 1;
  t.tokens.sink_end = t.tokens.sinks = 1;
  t.tokens.position = 8;
  t.tokens.two_query = true;
  t.attend(1, &now);
  EXPECT_FLOAT_EQ(t.weights[0] / t.weights[2], 0.5f);
  EXPECT_EQ(t.weights[1], 0);
}

TEST(Reference, InsertTurnsAndRoundsTheKey) {
  Tiny t;
  t.layer.key_type = t.layer.value_type = CacheType::kF16;
  t.step.shape.rope = RopeKind::kHalves;
  t.step.shape.rope_dims = 2;
  t.tokens.rotation = Rotation::kOnWrite;
  const int inserted = 3;
  t.slots.inserted = &inserted;
  t.slots.inserted_count = 1;
  t.k = {2, 1};
  t.v = {1.0f + 0x1p-12f};  // no half: rounds to 1
  t.step.k = {t.k.data(), 2, 2};
  t.step.v = {t.v.data(), 1, 1};
  const float quarter[] = {0, 1};  // a quarter turn: (a, b) -> (-b, a)
  t.tokens.key_row = quarter;
  t.tokens.count = 1;
  insert_reference(t.step);
  EXPECT_EQ(kv_format(CacheType::kF16).load(t.page.data(), key_index(t.layer, 3, 0)), -1);
  EXPECT_EQ(kv_format(CacheType::kF16).load(t.page.data(), key_index(t.layer, 3, 1)), 2);
  EXPECT_EQ(kv_format(CacheType::kF16).load(t.page.data() + value_offset(t.layer), value_index(t.layer, 3)), 1);
}

// Keys rotated on read at their rank, keys rotated on write at their rank, and a second query for the sinks give the
// same distances.
TEST(Reference, ThreeWaysToCachePositions) {
  RopeOptions o;
  o.dims = 2;
  const RopeFrequencies rope(o);
  const auto row = [&](Position p) {
    std::array<float, 2> r;
    rope.row(p, r.data());
    return r;
  };
  // Kept: the sink 0 and the window 90, 91; the query is 92. Ranks 0, 1, 2, and 3 for the query.
  const std::int32_t relative[] = {0, 90, 91}, now = 92;
  const float keys[3][2] = {{1, 2}, {0.5f, -1}, {3, 0.25f}};
  std::vector<float> ranks;
  for (int r = 0; r < 4; ++r)
    for (float x : row(r)) ranks.push_back(x);

  std::vector<float> results;
  for (int way = 0; way < 2; ++way) {
    Tiny t;
    t.step.shape.rope = RopeKind::kPairs;
    t.step.shape.rope_dims = 2;
    t.q = {0.7f, 0.3f};
    for (int i = 0; i < 3; ++i) {
      t.put(i, relative[i], keys[i][0], keys[i][1], static_cast<float>(i));
      t.rank[i] = i;
    }
    const auto at_position = row(92);
    t.slots.occupied = 4;
    t.tokens.rank_row = ranks.data();
    if (way == 0) {
      t.tokens.rotation = Rotation::kOnRead;
    } else {
      for (int i = 0; i < 3; ++i) {
        const auto r = row(relative[i]);
        t.put(i, relative[i], keys[i][0] * r[0] - keys[i][1] * r[1], keys[i][0] * r[1] + keys[i][1] * r[0],
              static_cast<float>(i));
      }
      t.tokens.rotation = Rotation::kOnWrite;
      t.tokens.key_row = at_position.data();
      t.tokens.two_query = true;
      t.tokens.sink_end = t.tokens.sinks = 1;
    }
    t.attend(1, &now);
    results.push_back(t.out[0]);
  }
  EXPECT_NEAR(results[0], results[1], 1e-6);
  EXPECT_GT(results[0], 0.1f);
}

}  // namespace
}  // namespace palimpsest::testing
