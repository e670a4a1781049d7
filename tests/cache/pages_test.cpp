#include "palimpsest/cache/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/memory.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(PagePool, CountsEveryPage) {
  std::mt19937 random(1);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{100'000}, std::size_t{3} << 20}) {
    PagePool pool(bytes);
    std::vector<std::byte*> held;
    std::size_t peak = 0;
    for (int i = 0; i < 500; ++i) {
      if (held.empty() || random() % 5 < (i < 300 ? 3U : 1U)) {
        held.push_back(pool.take());
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(held.back()) % 64, 0u);
        std::memset(held.back(), static_cast<int>(held.size()), 1);
      } else {
        std::swap(held[random() % held.size()], held.back());
        pool.give_back(held.back());
        held.pop_back();
      }
      peak = std::max(peak, held.size());
      ASSERT_EQ(pool.pages_in_use(), held.size());
      ASSERT_EQ(pool.bytes_in_use(), held.size() * bytes);
      ASSERT_EQ(pool.bytes_peak(), peak * bytes);
      ASSERT_GE(pool.bytes_reserved(), pool.bytes_in_use());
    }
    std::ranges::sort(held);
    for (std::size_t i = 1; i < held.size(); ++i)
      ASSERT_GE(static_cast<std::size_t>(held[i] - held[i - 1]), bytes) << "pages overlap";
    for (auto* page : held) pool.give_back(page);
    EXPECT_EQ(pool.bytes_in_use(), 0u);
  }
}

TEST(PagePool, GivesEmptySlabsBackToTheSystem) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own memory for every byte touched hides the program's";
#endif
  constexpr std::size_t kPage = std::size_t{64} << 10, kPages = 1024, kAll = kPage * kPages;
  PagePool pool(kPage);
  const std::size_t before = resident_bytes();
  std::vector<std::byte*> held;
  for (std::size_t i = 0; i < kPages; ++i) {
    held.push_back(pool.take());
    std::memset(held.back(), 1, kPage);
  }
  EXPECT_EQ(pool.bytes_reserved(), kAll);
  EXPECT_GE(resident_bytes() + (kAll >> 3), before + kAll);
  for (std::size_t i = 0; i < kPages; ++i) pool.give_back(held[i]);
  EXPECT_EQ(pool.bytes_reserved(), std::size_t{2} << 20);  // one slab is kept
  EXPECT_LT(resident_bytes(), before + (kAll >> 3));
}

TEST(PagePool, OnePageTakenAndGivenBackCostsNoSlab) {
  PagePool pool(std::size_t{2} << 20);
  std::set<std::byte*> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(pool.take());
    pool.give_back(*seen.begin());
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST(PagePool, SaysSoWhenThereIsNoMemory) {
  PagePool pool(std::size_t{1} << 50);
  const auto message = error_of([&] { pool.take(); });
  EXPECT_TRUE(message.starts_with("the system gave no memory for ")) << message;
  EXPECT_NE(message.find("lower the budget"), std::string::npos) << message;
  EXPECT_EQ(pool.pages_in_use(), 0u);
}

TEST(PagePool, AsksForRoomBeforeItsLimit) {
  PagePool pool(4096);
  std::vector<std::byte*> spare;
  pool.limit(4, [&] {
    if (spare.empty()) return false;
    pool.give_back(spare.back());
    spare.pop_back();
    return true;
  });
  std::byte* mine = pool.take();
  for (int i = 0; i < 2; ++i) spare.push_back(pool.take());
  pool.share(mine);
  spare.push_back(mine);
  std::byte* last = pool.take();
  EXPECT_EQ(spare.size(), 3u) << "there was room";
  std::memset(mine, 7, 4096);
  EXPECT_EQ(pool.own(mine), mine) << "the other user gave it up";
  EXPECT_EQ(pool.pages_copied(), 0u);
  EXPECT_EQ(spare.size(), 2u);
  pool.reserve(2);
  EXPECT_EQ(spare.size(), 0u);
  EXPECT_EQ(pool.pages_in_use(), 2u);
  std::vector<std::byte*> more;
  for (int i = 0; i < 3; ++i) more.push_back(pool.take());
  EXPECT_EQ(pool.pages_in_use(), 5u) << "nobody gives way";
  for (std::byte* page : more) pool.give_back(page);
  pool.give_back(mine);
  pool.give_back(last);
}

TEST(Cache, IsUnchangedWhenThereIsNoMemory) {
  Cache cache({.geometry = HeadGeometry::uniform(1, 1, 1 << 24, 1 << 24), .page_size = 1 << 24});
  EXPECT_THROW(cache.insert(3), Error);
  EXPECT_EQ(cache.live(), 0);
  EXPECT_EQ(cache.next(), 0);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST(Cache, SequencesShareAPool) {
  const CacheOptions options{.geometry = HeadGeometry::uniform(2, 3, 8, 8)};
  auto pool = std::make_shared<PagePool>(page_bytes(LayerView{.head_dim = 8, .value_dim = 8, .page_size = 16}));
  Cache a(options, pool);
  {
    Cache b(options, pool);
    a.insert(17);
    b.insert(40);
    EXPECT_EQ(pool->pages_in_use(), 6u * (2 + 3));
    EXPECT_EQ(a.bytes_in_use() + b.bytes_in_use(), pool->bytes_in_use());
  }
  EXPECT_EQ(pool->pages_in_use(), 6u * 2);
  EXPECT_EQ(a.bytes_in_use(), a.bytes_peak());
}

// The bytes of a budget are a formula: nothing more is held in the steady state.
TEST(Cache, HoldsWhatTheFormulaSays) {
  const CacheOptions options{.geometry = HeadGeometry::uniform(4, 2, 64, 64), .page_size = 64, .track_rank = true};
  Cache cache(options);
  cache.insert(1000);
  const auto pages = [](std::size_t n) { return n * 4 * 2 * 64 * (64 + 64) * 2; };
  EXPECT_EQ(cache.bytes_in_use(), pages(16));
  Plan plan;
  plan.drop.resize(1);
  for (int slot = 0; slot < 1000 - 255; ++slot) plan.drop[0].push_back(slot);
  cache.apply(plan);
  EXPECT_EQ(cache.bytes_in_use(), pages(16)) << "as many may come as have left";
  cache.insert(1);
  plan.drop[0] = {999};
  cache.apply(plan);  // a step of one: the rest goes back
  EXPECT_EQ(cache.bytes_in_use(), pages(5));
  EXPECT_EQ(cache.bytes_peak(), pages(16));
  EXPECT_EQ(cache.evicted(), 746);
  const std::size_t slots = static_cast<std::size_t>(cache.table(0).slots());
  EXPECT_GE(cache.bytes_tables(), slots * (8 + 4 + 4 + 4) + slots / 64 * (4 + 4 * 2 * 8));
  cache.clear();
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace palimpsest::testing
