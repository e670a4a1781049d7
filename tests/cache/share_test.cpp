// Caches that share pages: random operations on several caches of one pool, each with its naive model (herd.h).
#include <gtest/gtest.h>

#include "tests/cache/herd.h"
#include "tests/support/slot_rows.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

using Types = std::pair<CacheType, CacheType>;  // of keys, of values

class CachesThatShare : public ::testing::TestWithParam<std::tuple<Types, int>> {};

TEST_P(CachesThatShare, SeeOnlyWhatIsTheirs) {
  const int operations = test_length(2000, 4500, 400);
  for (unsigned seed = 1; seed <= test_length(2U, 3U, 1U); ++seed) {
    const auto& [types, page_size] = GetParam();
    Herd herd(types.first, types.second, page_size, seed);
    for (int i = 0; i < operations && !HasFatalFailure(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " operation " + std::to_string(i));
      herd.step();
      herd.check();
    }
    EXPECT_GT(herd.forks, operations / 45);
    EXPECT_GT(herd.crossings, operations / 450);
    EXPECT_GT(static_cast<int>(herd.pool->pages_copied()), operations / 9);
    herd.pairs.clear();
    EXPECT_EQ(herd.pool->pages_in_use(), 0u);
  }
}

constexpr auto kF32 = CacheType::kF32, kF16 = CacheType::kF16, kBF16 = CacheType::kBF16, kQ8 = CacheType::kQ8_0,
               kQ4 = CacheType::kQ4, kQ3 = CacheType::kQ3, kQ2 = CacheType::kQ2;
std::string kind_name(const ::testing::TestParamInfo<std::tuple<Types, int>>& info) {
  const auto& [types, page_size] = info.param;
  constexpr const char* kNames[] = {"F32", "F16", "BF16", "Q8", "Q40", "Q4", "Q3", "Q2"};
  return std::string(kNames[static_cast<int>(types.first)]) + kNames[static_cast<int>(types.second)] + "Page" +
         std::to_string(page_size);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CachesThatShare,
                         ::testing::Combine(::testing::Values(Types{kF16, kF16}, Types{kF32, kF32}, Types{kBF16, kBF16},
                                                              Types{kQ8, kQ8}, Types{kQ4, kQ4}, Types{kQ3, kQ3},
                                                              Types{kQ2, kQ2}),
                                            ::testing::Values(16, 48)),
                         kind_name);
INSTANTIATE_TEST_SUITE_P(MixedTypes, CachesThatShare,
                         ::testing::Values(std::tuple(Types{kQ8, kF16}, 16), std::tuple(Types{kF32, kQ8}, 48),
                                           std::tuple(Types{kQ4, kQ8}, 16), std::tuple(Types{kQ4, kQ2}, 16),
                                           std::tuple(Types{kQ8, kQ3}, 48)),
                         kind_name);

// Copy-on-write: a page is copied when one cache writes to it, and only then.
TEST(CachesThatShareCopy, OnlyThePagesThatTheyWrite) {
  const CacheOptions options{.geometry = HeadGeometry::uniform(2, 3, 8, 8)};  // 6 heads, pages of 16
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(options).view(0)));
  Cache a(options, pool), b(options, pool);
  a.insert(40);  // 3 pages of each head, the last half full
  b.share(a);
  EXPECT_EQ(pool->pages_in_use(), 18u);
  EXPECT_EQ(b.occupied(), 40);
  b.insert(8);
  EXPECT_EQ(pool->pages_copied(), 6u) << "the last page of each head";
  a.insert(1);
  EXPECT_EQ(pool->pages_copied(), 6u) << "nobody else has it any more";
  Victims plan;
  plan.drop = {{3, 5}};
  b.apply(plan);
  EXPECT_EQ(pool->pages_copied(), 6u) << "an eviction in place writes nothing";
  b.insert(2);
  EXPECT_EQ(pool->pages_copied(), 12u);
  EXPECT_EQ(pool->pages_in_use(), 18u + 12u);
  a.clear();
  EXPECT_EQ(pool->pages_in_use(), 18u);
  b.insert(20);
  EXPECT_EQ(pool->pages_copied(), 12u);
}

// Gathered survivors get new pages; if there are none, the next token is written to an old page.
TEST(CachesThatShareCopy, AlsoWhereNobodyIsLeftToGather) {
  const CacheOptions options{.geometry = HeadGeometry::uniform(1, 1, 8, 8), .mechanism = Mechanism::kGather};
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(options).view(0)));
  Cache a(options, pool), b(options, pool);
  a.insert(1);
  b.share(a);
  const std::vector<std::vector<int>> all = {{0}};
  b.prepare({.drop = all, .insert = 1}).commit();
  EXPECT_NE(a.pages(), b.pages());
}

// Rows go to the slots of the same positions, whatever the tables; shared pages are copied first.
TEST(CachesThatShareCopy, RowsOfTheSamePositions) {
  for (const CacheType type : {kF16, kQ4, kQ3, kQ2}) {
    const CacheOptions one{.geometry = HeadGeometry::uniform(1, 2, 64, 64, type)};
    CacheOptions each = one;
    each.shared = false;
    const auto pool = std::make_shared<PagePool>(page_bytes(Cache(one).view(0)));
    Cache full(one, pool), small(each, pool);
    // Rows of the positions in `range`, which tell position, head and `sign` in every format.
    const auto write = [](Cache& cache, PositionRange range, int sign) {
      const LayerView view = cache.view(0);
      for (int head = 0; head < 2; ++head) {
        std::vector<int> slots;
        cache.table(cache.table_of(head)).append_slots(range, slots);
        for (const int slot : slots) {
          const Position position = cache.table(cache.table_of(head)).position(slot);
          std::vector<float> row(64);  // one number: the rotated row has one magnitude, which types of few bits hold
          row[5] = static_cast<float>(sign * (1 + position + 100 * head));
          std::byte* const page = cache.head(head).page[slot / view.page_size];
          store_key(view, page, slot % view.page_size, row.data());
          store_value(view, page, slot % view.page_size, row.data());
        }
      }
    };
    const auto sign_of = [](const Cache& cache, int head, Position position) {
      std::vector<int> slots;
      cache.table(cache.table_of(head)).append_slots({position, position + 1}, slots);
      if (slots.size() != 1) return 0;
      const LayerView view = cache.view(0);
      const std::byte* const page = cache.head(head).page[slots[0] / view.page_size];
      const auto key = key_in(view, page, slots[0] % view.page_size),
                 value = value_in(view, page, slots[0] % view.page_size);
      EXPECT_NEAR(std::abs(key[5]), 1 + position + 100 * head, 8);
      EXPECT_NEAR(value[5], key[5], 8);
      return key[5] > 0 ? 1 : -1;
    };
    full.insert(20);
    write(full, {0, 20}, 1);
    small.share(full);
    Victims plan;
    plan.drop = {{0, 3}, {1, 7}};
    small.apply(plan);
    small.insert(4);
    full.insert(4);
    write(full, {20, 24}, 1);
    write(small, {20, 24}, -1);
    std::size_t copied = pool->pages_copied();
    small.copy_rows(full, {20, 22});
    for (int head = 0; head < 2; ++head)
      for (Position position = 20; position < 24; ++position)
        EXPECT_EQ(sign_of(small, head, position), position < 22 ? 1 : -1) << position;
    EXPECT_EQ(pool->pages_copied(), copied) << "pages that were written to are the cache's own";
    Cache other(each, pool);  // shares pages that are written to: its rows stay
    other.share(small);
    full.make_exclusive();
    write(full, {10, 12}, -1);
    copied = pool->pages_copied();
    small.copy_rows(full, {10, 12});
    for (int head = 0; head < 2; ++head) {
      EXPECT_EQ(sign_of(small, head, 10), -1);
      EXPECT_EQ(sign_of(small, head, 12), 1);
      EXPECT_EQ(sign_of(other, head, 10), 1);
    }
    EXPECT_GT(pool->pages_copied(), copied);
    small.copy_rows(full, {0, 4});  // of which the small one holds some
    EXPECT_EQ(sign_of(small, 0, 0), 0);
    EXPECT_EQ(small.fault(), nullptr);
  }
}

}  // namespace
}  // namespace palimpsest::testing
