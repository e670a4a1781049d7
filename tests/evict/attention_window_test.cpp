// The window's columns against a list of the weights of each query.
#include "palimpsest/evict/attention_window.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/naive_window.h"

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

// Prompts in chunks and single tokens, random drops with every mechanism: each token's sum is over the queries that the
// window counts.
TEST(AttentionWindow, SumsTheQueriesThatCountWhereverTheTokenLies) {
  std::mt19937 random(4);
  for (const int window : {1, 2, 7, 8, 9, 32, 33, -1, -5, -32})  // negative: past and current, and the sum of all
    for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kGather, Mechanism::kAppend}) {
      const bool both = window < 0;
      Signals signals = {.attention_window = AttentionWindow{.queries = std::abs(window), .past = both}};
      if (both) signals.attention_sum = AttentionSum{};
      WindowParts parts(signals);
      NaiveWindow naive(*signals.attention_window);
      Cache cache(options(mechanism, signals.columns()));
      std::map<Position, std::map<Position, float>> given[2];  // token -> query -> weight
      const int prompt = 20 + static_cast<int>(random() % 300);
      for (int step = 0; step < 120; ++step) {
        Victims plan;
        plan.drop.resize(2);
        for (int t = 0; t < 2; ++t)
          for (int slot = 0; slot < cache.table(t).slots(); ++slot)
            if (cache.table(t).position()[static_cast<std::size_t>(slot)] != kNoPosition && random() % 8 == 0)
              plan.drop[static_cast<std::size_t>(t)].push_back(slot);
        for (int t = 0; t < 2; ++t)  // oldest first
          std::ranges::sort(plan.drop[static_cast<std::size_t>(t)], {},
                            [&](int slot) { return cache.table(t).position()[static_cast<std::size_t>(slot)]; });
        cache.apply(plan);
        const int left = static_cast<int>(prompt - cache.next());
        const int count = left > 0 ? std::min(left, 1 + static_cast<int>(random() % (random() % 3 == 0 ? 50 : 6))) : 1;
        naive.read(cache.next(), count, prompt);
        parts.add(count, left > 0 ? left - count : -1);
        cache.insert(count);
        for (int t = 0; t < 2; ++t) {
          SlotTable& table = cache.table(t);
          const int slots = table.slots(), rows = static_cast<int>(parts.rows().size());
          std::vector<float> weights(at(slots * rows)), sums(at(slots));
          for (int slot = 0; slot < slots; ++slot) {
            const Position token = table.position(slot);
            if (token == kNoPosition) continue;
            Position query = table.next() - parts.queries();
            for (int row = 0; row < rows; ++row)
              for (int i = 0; i < parts.rows()[at(row)]; ++i) {
                const float weight = given[t][token][query++] = static_cast<float>(random() % 1024) / 1024;
                weights[at(row * slots + slot)] += weight;
                sums[at(slot)] += weight;
              }
            EXPECT_EQ(query, table.next());
          }
          add_to_window(signals, parts, table, {weights.data(), rows, slots, slots},
                        both ? std::span<const float>(sums) : std::span<const float>());
          std::vector<float> sum;
          window_sum(signals, cache, t, sum);
          for (int slot = 0; slot < slots; ++slot) {
            if (table.position(slot) == kNoPosition) continue;
            float expected = 0, all = 0;
            for (const auto& [query, weight] : given[t][table.position(slot)]) {
              all += weight;
              if (naive.counts(query)) expected += weight;
            }
            ASSERT_NEAR(sum[at(slot)], expected, 1e-4) << "window " << window << " step " << step << " slot " << slot;
            if (!both) continue;
            ASSERT_NEAR(table.column(2)[at(slot)], all, 1e-3);
          }
        }
      }
    }
}

// The queries that count after each step of a prompt and in decode: after the prompt its last n, whatever the chunks;
// in decode at most n, and a part fewer at least.
TEST(AttentionWindow, CountsThePromptsLastQueries) {
  for (const int window : {1, 7, 8, 9, 32, 64})
    for (const bool past : {false, true})
      for (const int chunk : {1, 5, 31, 32, 33, 64, 512})
        for (int prompt : {1, 3, 24, 31, 32, 33, 63, 64, 65, 100, 128, 555}) {
          SCOPED_TRACE(::testing::Message()
                       << window << (past ? " past" : "") << " chunk " << chunk << " of " << prompt);
          const Signals signals = {.attention_window = AttentionWindow{.queries = window, .past = past}};
          WindowParts parts(signals);
          NaiveWindow naive(*signals.attention_window);
          const auto counted = [&] {
            int sum = 0;
            for (int c = 0; c < signals.parts(); ++c) sum += parts.size(c);
            EXPECT_EQ(sum, naive.counted());
            return sum;
          };
          for (int read = 0; read < prompt;) {
            const int count = std::min(chunk, prompt - read);
            naive.read(read, count, prompt);
            parts.add(count, prompt - read - count);
            read += count;
            EXPECT_LE(counted(), past ? 2 * window - 1 : window);
          }
          for (Position query = prompt - window; query < prompt; ++query) EXPECT_TRUE(query < 0 || naive.counts(query));
          const int of_prompt = std::min(window, prompt);
          EXPECT_EQ(counted(), of_prompt);
          for (int decoded = 1; decoded <= 3 * window; ++decoded) {
            naive.read(prompt + decoded - 1, 1, prompt);
            parts.add(1, -1);
            if (past) {
              // The paper's L_win to 2 L_win - 1: the past window, and the queries since it ended.
              EXPECT_EQ(counted(), (decoded < window ? of_prompt : window) + decoded % window);
            } else {
              EXPECT_LE(counted(), window);
              EXPECT_GE(counted(), std::min(of_prompt + decoded, window - (window + 7) / 8 + 1));
            }
          }
        }
}

// A prompt that is shorter than the window goes on where decode was: a session continues with a token or a few.
TEST(AttentionWindow, OfAShortPromptInsideATextIsTheDecodedOne) {
  for (const bool past : {false, true}) {
    const Signals signals = {.attention_window = AttentionWindow{.queries = 32, .past = past}};
    WindowParts decoded(signals), prompted(signals);
    for (WindowParts* parts : {&decoded, &prompted}) {
      parts->add(100, 0);
      for (int i = 0; i < 9; ++i) parts->add(1, -1);
    }
    for (int i = 0; i < 5; ++i) decoded.add(1, -1);
    prompted.add(5, 0);
    for (int i = 0; i < 60; ++i) {
      for (int c = 0; c < signals.parts(); ++c) EXPECT_EQ(decoded.size(c), prompted.size(c)) << i;
      decoded.add(1, -1);
      prompted.add(1, -1);
    }
  }
}

TEST(AttentionWindow, OfAWholeLayerIsTheMeanOverItsHeads) {
  const Signals signals = {.attention_window = AttentionWindow{.queries = 1, .whole_layer = true}};
  WindowParts parts(signals);
  Cache cache(options(Mechanism::kInPlace, 1));
  cache.insert(3);
  parts.add(3, 0);
  std::vector<float> a(16), b(16);
  a[0] = 1, a[2] = 0.5F, b[2] = 1;
  add_to_window(signals, parts, cache.table(0), {a.data(), 1, 16, 16});
  add_to_window(signals, parts, cache.table(1), {b.data(), 1, 16, 16});
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
