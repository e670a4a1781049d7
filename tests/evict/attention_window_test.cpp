// The window's columns against a list of the weights of each query.
#include "palimpsest/evict/attention_window.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace palimpsest::testing {
namespace {

CacheOptions options(Mechanism mechanism, int columns) {
  return {.geometry = HeadGeometry::uniform(1, 2, 4, 4),
          .page_size = 16,
          .mechanism = mechanism,
          .shared = false,
          .columns = columns,
          .pages = false};
}

// Steps of one and of many tokens, random drops with every mechanism: each token's sum is over the queries in the parts
// that the window holds.
TEST(AttentionWindow, SumsTheLastQueriesOfEachTokenWhereverItLies) {
  std::mt19937 random(4);
  for (const int window : {1, 2, 7, 8, 9, 32, 33, -5, -32})  // negative: two windows, and the sum of all queries
    for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kGather, Mechanism::kAppend}) {
      const bool both = window < 0;
      Signals signals = {.attention_window = AttentionWindow{.queries = std::abs(window), .past = both}};
      if (both) signals.attention_sum = AttentionSum{};
      const int parts = both ? 2 : std::min(window, 8), size = both ? -window : (window + parts - 1) / parts;
      Cache cache(options(mechanism, parts + (both ? 1 : 0)));
      std::map<Position, std::vector<std::pair<Position, float>>> given[2];  // token -> last query of a step, weight
      for (int step = 0; step < 120; ++step) {
        Plan plan;
        plan.drop.resize(2);
        for (int t = 0; t < 2; ++t)
          for (int slot = 0; slot < cache.table(t).slots(); ++slot)
            if (cache.table(t).position()[static_cast<std::size_t>(slot)] != kNoPosition && random() % 8 == 0)
              plan.drop[static_cast<std::size_t>(t)].push_back(slot);
        for (int t = 0; t < 2; ++t)  // oldest first
          std::ranges::sort(plan.drop[static_cast<std::size_t>(t)], {},
                            [&](int slot) { return cache.table(t).position()[static_cast<std::size_t>(slot)]; });
        cache.apply(plan);
        cache.insert(random() % 4 == 0 ? 1 + static_cast<int>(random() % 40) : 1);
        for (int t = 0; t < 2; ++t) {
          SlotTable& table = cache.table(t);
          std::vector<float> weights(static_cast<std::size_t>(table.slots()));
          for (std::size_t slot = 0; slot < weights.size(); ++slot) {
            if (table.position()[slot] == kNoPosition) continue;
            weights[slot] = static_cast<float>(random() % 1024) / 1024;
            given[t][table.position()[slot]].emplace_back(table.next() - 1, weights[slot]);
          }
          std::vector<float> sums;
          for (const float weight : weights) sums.push_back(2 * weight);
          add_to_window(signals, table, weights, sums);
          std::vector<float> sum;
          window_sum(signals, cache, t, sum);
          for (std::size_t slot = 0; slot < sum.size(); ++slot) {
            if (table.position()[slot] == kNoPosition) continue;
            float expected = 0;
            for (const auto& [query, weight] : given[t][table.position()[slot]])
              if (query / size > (table.next() - 1) / size - parts) expected += weight;
            ASSERT_NEAR(sum[slot], expected, 1e-4) << "window " << window << " step " << step << " slot " << slot;
            if (!both) continue;
            float all = 0;
            for (const auto& [query, weight] : given[t][table.position()[slot]]) all += 2 * weight;
            ASSERT_NEAR(table.column(parts)[slot], all, 1e-3);
          }
        }
      }
    }
}

// A window holds the last n queries, or up to an eighth fewer; with single steps never more.
TEST(AttentionWindow, HoldsNoMoreThanItsLength) {
  for (const int window : {1, 8, 32}) {
    const Signals signals = {.attention_window = AttentionWindow{.queries = window}};
    Cache cache(options(Mechanism::kInPlace, signals.parts()));
    for (int step = 1; step <= 200; ++step) {
      cache.insert(1);
      const std::vector<float> ones(static_cast<std::size_t>(cache.table(0).slots()), 1);
      for (int t = 0; t < 2; ++t) add_to_window(signals, cache.table(t), ones);
      std::vector<float> sum;
      window_sum(signals, cache, 0, sum);
      EXPECT_LE(sum[0], window);
      EXPECT_GE(sum[0], std::min(step, window - window / 8 + (window >= 8 ? 1 : 0)));
    }
  }
}

TEST(AttentionWindow, OfAWholeLayerIsTheMeanOverItsHeads) {
  const Signals signals = {.attention_window = AttentionWindow{.queries = 1, .whole_layer = true}};
  Cache cache(options(Mechanism::kInPlace, 1));
  cache.insert(3);
  std::vector<float> a(16), b(16);
  a[0] = 1, a[2] = 0.5F, b[2] = 1;
  add_to_window(signals, cache.table(0), a);
  add_to_window(signals, cache.table(1), b);
  for (int t = 0; t < 2; ++t) {
    std::vector<float> sum;
    window_sum(signals, cache, t, sum);
    EXPECT_EQ(sum[0], 0.5F);
    EXPECT_EQ(sum[1], 0);
    EXPECT_EQ(sum[2], 0.75F);
  }
}

}  // namespace
}  // namespace palimpsest::testing
