// Explicit cases beside the random comparison: slots of drafts, edits of the text, limits of commit.
#include "palimpsest/cache/transaction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "tests/cache/failing_memory.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

CacheOptions small(Mechanism mechanism = Mechanism::kInPlace) {
  return {.geometry = HeadGeometry::uniform(1, 1, 4, 4), .mechanism = mechanism, .track_rank = true};
}

std::vector<Position> positions(const Cache& cache) {
  const auto all = cache.table(0).position();
  return {all.begin(), all.end()};
}

std::vector<Position> text(const Cache& cache) {
  std::vector<Position> all = positions(cache);
  std::erase(all, kNoPosition);
  std::ranges::sort(all);
  return all;
}

static_assert(noexcept(std::declval<Transaction&>().commit()));

TEST(Transactions, OneThatIsLetGoChangesNothing) {
  Cache cache(small());
  cache.insert(40);
  const std::vector<std::vector<int>> drop = {{3, 5}};
  const auto before = positions(cache);
  const auto pages = cache.pages();
  const auto whens = [&] {
    const SlotsView& slots = *cache.view(0).head[0].slots;
    return std::vector<std::int32_t>(slots.relative, slots.relative + slots.slots);
  };
  const auto when = whens();
  {
    const Transaction change = cache.prepare({.drop = drop, .insert = 40});
    EXPECT_EQ(positions(cache), before);
    EXPECT_EQ(cache.occupied(), 40);
    EXPECT_EQ(cache.pages(), pages);
    EXPECT_EQ(whens(), when);
  }
  EXPECT_EQ(positions(cache), before);
  EXPECT_EQ(cache.pages(), pages);
  EXPECT_EQ(whens(), when);
  cache.prepare({.drop = drop, .insert = 1}).commit();
  EXPECT_EQ(cache.table(0).position()[3], kNoPosition);  // 8 slots were free before
  EXPECT_EQ(cache.occupied(), 39);
}

TEST(Transactions, TheNewTokenTakesTheVictimsSlot) {
  Cache cache(small());
  cache.insert(32);
  const std::vector<std::vector<int>> drop = {{9, 4}};
  cache.prepare({.drop = drop, .insert = 2}).commit();
  EXPECT_EQ(std::vector<int>(cache.table(0).inserted().begin(), cache.table(0).inserted().end()),
            (std::vector<int>{9, 4}));
  EXPECT_EQ(cache.table(0).slots(), 32);
}

// A decode step, prepared and committed, allocates nothing.
TEST(Transactions, AStepTakesNoMemory) {
  for (const Mechanism mechanism : {Mechanism::kInPlace, Mechanism::kShift, Mechanism::kMerge}) {
    CacheOptions options = small(mechanism);
    options.shared = mechanism != Mechanism::kMerge;
    Cache cache(options);
    cache.insert(64);
    std::vector<std::vector<int>> drop(1);
    for (int step = 0; step < 100; ++step) {
      std::vector<int> slots;
      cache.table(0).append_slots({0, kEndOfText}, slots);
      drop[0].assign(slots.begin(), slots.begin() + 1);
      const FailingMemory memory(0);
      cache.prepare({.drop = drop, .insert = 1}).commit();
      if (step > 10) {
        ASSERT_EQ(memory.acquisitions(), 0) << static_cast<int>(mechanism);
      }
    }
    EXPECT_EQ(cache.occupied(), 64);
  }
}

// Sequences with and without drafts hold the same tokens in the same slots, whatever number of drafts is accepted:
// drafts take free slots, up to the next eviction.
class Drafts : public ::testing::TestWithParam<std::tuple<Mechanism, int>> {};

TEST_P(Drafts, DoNotChangeATokensSlot) {
  const auto [mechanism, interval] = GetParam();
  constexpr int kMax = 6, kBudget = 70, kSinks = 4;
  Cache plain(small(mechanism)), drafted(small(mechanism));
  std::mt19937 random(7);
  const auto step = [&](Cache& cache) {  // evicts and inserts one
    const int over = cache.occupied() + 1 - kBudget;
    std::vector<int> slots;
    cache.table(0).append_slots({kSinks, kEndOfText}, slots);
    slots.resize(over >= interval ? static_cast<std::size_t>(over) : 0);
    const std::vector<std::vector<int>> drop{slots};
    cache.prepare({.drop = drop, .insert = 1}).commit();
  };
  for (int round = 0; round < 400; ++round) {
    const int free = drafted.table(0).free_slots();
    const int room = std::min(kBudget + interval - 1 - drafted.occupied(), free == 0 ? 16 : free);
    const int count = std::min(room, 1 + static_cast<int>(random() % kMax));
    if (count <= 0) {
      step(drafted), step(plain);
    } else {
      const int accepted = 1 + static_cast<int>(random() % static_cast<unsigned>(count));
      drafted.prepare({.insert = count}).commit();
      drafted.prepare({.reject = count - accepted}).commit();
      for (int i = 0; i < accepted; ++i) step(plain);
    }
    ASSERT_EQ(positions(drafted), positions(plain)) << round;
    ASSERT_EQ(drafted.table(0).mapped_pages(), plain.table(0).mapped_pages()) << round;
  }
  EXPECT_GT(plain.evicted(), 300);
}

// Drafts that take no slots change what a view shows, until the next change.
TEST(Transactions, PreviewsAreOfViews) {
  Cache cache(small());
  cache.insert(32);
  const auto before = positions(cache);
  const std::vector<std::vector<SlotPatch>> patches = {{{1, 5, false}, {1, 5, true}}};
  cache.preview(patches);
  EXPECT_EQ(cache.view(0).head[0].slots->patches.size(), 2U);
  EXPECT_EQ(cache.view(0).head[0].slots->patches[1], patches[0][1]);
  EXPECT_EQ(positions(cache), before);
  EXPECT_EQ(cache.next(), 32);
  cache.insert(1);
  EXPECT_TRUE(cache.view(0).head[0].slots->patches.empty());
}

INSTANTIATE_TEST_SUITE_P(Plans, Drafts,
                         ::testing::Combine(::testing::Values(Mechanism::kInPlace, Mechanism::kShift,
                                                              Mechanism::kAppend),
                                            ::testing::Values(2, 8, 32)));

TEST(Edits, ReplaceAStretchOfTheText) {
  Cache cache(small());
  cache.insert(20);
  cache.prepare({.drop_range = {5, 8}, .shift_range = {8, kEndOfText}, .shift_by = -1, .insert = 2, .at = 5}).commit();
  std::vector<Position> wanted(19);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<Position>(i);
  EXPECT_EQ(text(cache), wanted);
  EXPECT_EQ(cache.next(), 19);
  const SlotTable& table = cache.table(0);
  EXPECT_EQ(table.tokens_read(), 22);
  for (const int slot : table.inserted()) {  // ranks follow positions, ordinals the order of reading
    EXPECT_EQ(table.rank()[static_cast<std::size_t>(slot)], table.position()[static_cast<std::size_t>(slot)]);
    EXPECT_EQ(table.ordinal(slot), 15 + table.position()[static_cast<std::size_t>(slot)]);
  }
  EXPECT_FALSE(cache.nothing_evicted()) << "the tokens behind were read after another text";
  cache.insert(1);
  EXPECT_EQ(table.position()[static_cast<std::size_t>(table.inserted()[0])], 19);
  EXPECT_EQ(table.ordinal(table.inserted()[0]), 22);
}

TEST(Edits, CutTheEndOff) {
  Cache cache(small());
  cache.insert(20);
  cache.drop(12, kEndOfText);
  EXPECT_EQ(cache.next(), 12);
  EXPECT_EQ(cache.occupied(), 12);
  EXPECT_EQ(cache.evicted(), 0) << "the user's doing, not a policy's";
  cache.insert(3);
  EXPECT_EQ(text(cache).back(), 14);
  EXPECT_FALSE(cache.table(0).edited()) << "as if what was behind had never been read";
  EXPECT_EQ(cache.table(0).tokens_read(), 15);
  EXPECT_FALSE(cache.nothing_evicted()) << "the last three are in other slots";
}

TEST(Edits, AreRefusedWhereTokensAre) {
  Cache cache(small());
  cache.insert(20);
  const auto refusal = [&](const CacheChange& change) {
    const auto before = positions(cache);
    const auto message = error_of([&] { cache.prepare(change).commit(); });
    EXPECT_EQ(positions(cache), before);
    EXPECT_FALSE(cache.table(0).edited());
    return message;
  };
  EXPECT_EQ(refusal({.insert = 2, .at = 5}), "there is a token at position 5, where another would go: drop it first");
  EXPECT_EQ(refusal({.shift_range = {8, kEndOfText}, .shift_by = -1}),
            "there is a token at position 7, where another would go: drop it first");
  EXPECT_EQ(refusal({.shift_range = {0, kEndOfText}, .shift_by = -1}),
            "a shift of the positions from 0 by -1 would go below 0");
  EXPECT_EQ(refusal({.shift_range = {18, 20}, .shift_by = 1}), "a shift of positions 18 to 20 by 1 would pass the end");
}

}  // namespace
}  // namespace palimpsest::testing
