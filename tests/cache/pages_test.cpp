#include "palimpsest/cache/pages.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/memory.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(PagePool, CountsEveryPage) {
  std::mt19937 random(1);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{100'000}, std::size_t{3} << 20}) {
    PagePool pool(bytes);
    std::vector<PageId> held;
    std::size_t peak = 0;
    for (int i = 0; i < 500; ++i) {
      if (held.empty() || random() % 5 < (i < 300 ? 3U : 1U)) {
        held.push_back(pool.take());
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pool.address(held.back())) % 64, 0u);
        std::memset(pool.address(held.back()), static_cast<int>(held.size()), bytes);
      } else {
        std::swap(held[random() % held.size()], held.back());
        pool.release(held.back());
        held.pop_back();
      }
      peak = std::max(peak, held.size());
      ASSERT_EQ(pool.pages_in_use(), held.size());
      ASSERT_EQ(pool.bytes_in_use(), held.size() * bytes);
      ASSERT_EQ(pool.bytes_peak(), peak * bytes);
      ASSERT_GE(pool.bytes_committed(), pool.bytes_in_use());
    }
    EXPECT_GE(pool.stride(), bytes);
    std::ranges::sort(held);
    for (std::size_t i = 1; i < held.size(); ++i) ASSERT_NE(held[i], held[i - 1]);
    for (const PageId page : held) pool.release(page);
    EXPECT_EQ(pool.bytes_in_use(), 0u);
  }
}

// Sizes of which one is a multiple of the other, and of which none is.
TEST(PagePool, KeepsPagesOfSeveralSizesApart) {
  for (const auto& [small, large] : {std::pair<std::size_t, std::size_t>{4096, 8192}, {192, 320}, {100, 3000}}) {
    PagePool pool(std::vector<std::size_t>{small, large});
    const std::size_t limit = 300 * large;
    pool.set_limit(limit, [] { return false; });
    std::mt19937 random(2);
    struct Held {
      PageId page;
      std::size_t bytes;
      unsigned char value;
    };
    std::vector<Held> held;
    std::size_t in_use = 0, peak = 0;
    const auto same = [&](const Held& each) {
      const auto* const at = reinterpret_cast<const unsigned char*>(pool.address(each.page));
      return std::all_of(at, at + each.bytes, [&](unsigned char byte) { return byte == each.value; });
    };
    for (int i = 0; i < 4000; ++i) {
      const bool grows = i / 500 % 2 == 0;  // in turns, so that slabs become empty and get the other size
      const int size = random() % 8 < (i / 1000 % 2 == 0 ? 1U : 7U) ? 1 : 0;
      const std::size_t bytes = size == 0 ? small : large;
      if (held.empty() || random() % 4 < (grows ? 3U : 1U)) {
        if (in_use + bytes > limit) continue;
        held.push_back({pool.take(size), bytes, static_cast<unsigned char>(random())});
        ASSERT_EQ(pool.bytes_of(held.back().page), bytes);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pool.address(held.back().page)) % 64, 0u);
        std::memset(pool.address(held.back().page), held.back().value, bytes);
        in_use += bytes;
      } else {
        std::swap(held[random() % held.size()], held.back());
        ASSERT_TRUE(same(held.back()));
        in_use -= held.back().bytes;
        pool.release(held.back().page);
        held.pop_back();
      }
      peak = std::max(peak, in_use);
      ASSERT_EQ(pool.bytes_in_use(), in_use);
      ASSERT_EQ(pool.bytes_peak(), peak);
      ASSERT_EQ(pool.pages_in_use(), held.size());
    }
    for (const Held& each : held) ASSERT_TRUE(same(each));
    const std::size_t wanted[] = {7, 9};
    pool.reserve(wanted);
    const std::size_t committed = pool.bytes_committed();
    std::vector<PageId> reserved;
    for (int size = 0; size < 2; ++size)
      for (std::size_t i = 0; i < wanted[size]; ++i) reserved.push_back(pool.take(size));
    EXPECT_EQ(pool.bytes_committed(), committed);
    for (const PageId page : reserved) pool.release(page);
    while (!held.empty()) {
      pool.share(held.back().page);
      const PageId copy = pool.make_exclusive(held.back().page);
      ASSERT_NE(copy, held.back().page);
      const Held other = {copy, held.back().bytes, held.back().value};
      ASSERT_TRUE(same(other));
      ASSERT_EQ(pool.bytes_of(copy), held.back().bytes);
      pool.release(copy);
      pool.release(held.back().page);
      held.pop_back();
    }
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
  std::vector<PageId> held;
  for (std::size_t i = 0; i < kPages; ++i) {
    held.push_back(pool.take());
    std::memset(pool.address(held.back()), 1, kPage);
  }
  EXPECT_EQ(pool.bytes_committed(), kAll);
  EXPECT_GE(resident_bytes() + (kAll >> 3), before + kAll);
  for (std::size_t i = 0; i < kPages; ++i) pool.release(held[i]);
  EXPECT_EQ(pool.bytes_committed(), std::size_t{2} << 20);  // one slab is kept
  EXPECT_LT(resident_bytes(), before + (kAll >> 3));
}

TEST(PagePool, OnePageTakenAndGivenBackCostsNoSlab) {
  PagePool pool(std::size_t{2} << 20);
  std::set<PageId> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(pool.take());
    pool.release(*seen.begin());
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST(PagePool, SaysSoWhenThereIsNoMemory) {
  PagePool pool(std::size_t{1} << 50);
  const auto message = error_of([&] { pool.take(); });
  EXPECT_TRUE(message.starts_with("the system refused ")) << message;
  EXPECT_NE(message.find("lower the budget"), std::string::npos) << message;
  EXPECT_EQ(pool.pages_in_use(), 0u);
}

// If the page size does not divide 2 MiB, a 2 MiB block belongs to two slabs: releasing one keeps the other's part.
TEST(PagePool, AnEmptySlabTakesNoPageOfItsNeighbours) {
  for (const std::size_t bytes : {std::size_t{8704}, std::size_t{100'000}, (std::size_t{2} << 20) + 64}) {
    PagePool pool(bytes);
    std::mt19937 random(3);
    std::map<PageId, unsigned char> held;
    const auto check = [&](PageId page, unsigned char value) {
      const auto* const at = reinterpret_cast<const unsigned char*>(pool.address(page));
      return std::all_of(at, at + bytes, [&](unsigned char byte) { return byte == value; });
    };
    const std::size_t slabs = 5, max = slabs * std::max<std::size_t>(8, (std::size_t{2} << 20) / bytes);
    for (int round = 0; round < 6; ++round) {
      while (held.size() < max) {
        const PageId page = pool.take();
        ASSERT_FALSE(held.contains(page));
        held[page] = static_cast<unsigned char>(random() | 1);
        std::memset(pool.address(page), held[page], bytes);
      }
      // Runs of adjacent pages, so that slabs become empty.
      const auto first = static_cast<PageId>(random() % max), last = first + static_cast<PageId>(max / 2);
      for (PageId page = first; page < last; ++page)
        if (held.erase(page) > 0) pool.release(page);
      for (const auto& [page, value] : held) ASSERT_TRUE(check(page, value)) << "page " << page << " of " << bytes;
    }
    EXPECT_LE(pool.bytes_committed(), (slabs + 2) * 2 * std::max<std::size_t>(8 * bytes, std::size_t{2} << 20));
    for (const auto& [page, value] : held) pool.release(page);
  }
}

TEST(PagePool, APageKeepsItsAddressWhileTheOthersCome) {
  PagePool pool(4096);
  EXPECT_EQ(pool.base(), nullptr);
  EXPECT_EQ(pool.bytes_of_range(), 0u) << "no page, no addresses";
  std::vector<PageId> held = {pool.take()};
  const std::byte* const base = pool.base();
  for (int i = 0; i < 5000; ++i) held.push_back(pool.take());
  EXPECT_EQ(pool.base(), base);
  EXPECT_EQ(pool.table(held)[5000], base + static_cast<std::size_t>(held[5000]) * pool.stride());
  held[7] = kNoPage;
  EXPECT_EQ(pool.table(held)[7], nullptr);
  held[7] = held[6] + 1;
  for (const PageId page : held) pool.release(page);
}

// A bound on the pages bounds the reserved addresses, so that a process with limited address space has some left.
TEST(PagePool, ReservesAddressesForTwiceItsLimit) {
  PagePool pool(std::size_t{1} << 16);
  pool.set_limit(1000 * pool.page_bytes(), [] { return false; });
  pool.release(pool.take());
  EXPECT_GE(pool.bytes_of_range(), 2000 * pool.stride());
  EXPECT_LE(pool.bytes_of_range(), 2200 * pool.stride());
}

#ifndef PALIMPSEST_SANITIZED  // sanitizers reserve terabytes of addresses
// ulimit -v: a pool reserves as much as it can; its error when full says what to do.
[[noreturn]] void fill_pools_of_few_addresses() {
  const rlimit few{std::size_t{1} << 30, std::size_t{1} << 30};
  setrlimit(RLIMIT_AS, &few);
  PagePool pool(std::size_t{1} << 20), other(std::size_t{1} << 20);
  for (int i = 0; i < 100; ++i) {
    std::memset(pool.address(pool.take()), 1, 4096);
    std::memset(other.address(other.take()), 1, 4096);
  }
  const std::string message = error_of([&] {
    for (;;) pool.take();
  });
  std::cerr << message << "\n";
  std::_Exit(pool.pages_in_use() > 200 && pool.pages_in_use() < 1024 ? 0 : 1);
}

TEST(PagePoolDeathTest, LivesWithFewAddresses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fill_pools_of_few_addresses(), ::testing::ExitedWithCode(0), "addresses.*lower the budget.*ulimit -v");
}
#endif

TEST(PagePool, AsksForRoomBeforeItsLimit) {
  PagePool pool(4096);
  std::vector<PageId> spare;
  pool.set_limit(4 * pool.page_bytes(), [&] {
    if (spare.empty()) return false;
    pool.release(spare.back());
    spare.pop_back();
    return true;
  });
  const PageId mine = pool.take();
  for (int i = 0; i < 2; ++i) spare.push_back(pool.take());
  pool.share(mine);
  spare.push_back(mine);
  const PageId last = pool.take();
  EXPECT_EQ(spare.size(), 3u) << "there was room";
  std::memset(pool.address(mine), 7, 4096);
  EXPECT_EQ(pool.make_exclusive(mine), mine) << "the other user gave it up";
  EXPECT_EQ(pool.pages_copied(), 0u);
  EXPECT_EQ(spare.size(), 2u);
  pool.reserve(2);
  EXPECT_EQ(spare.size(), 0u);
  EXPECT_EQ(pool.pages_in_use(), 2u);
  std::vector<PageId> more;
  for (int i = 0; i < 3; ++i) more.push_back(pool.take());
  EXPECT_EQ(pool.pages_in_use(), 5u) << "nobody gives way";
  for (const PageId page : more) pool.release(page);
  pool.release(mine);
  pool.release(last);
}

TEST(Cache, IsUnchangedWhenThereIsNoMemory) {
  Cache cache({.geometry = HeadGeometry::uniform(1, 1, 1 << 24, 1 << 24), .page_size = 1 << 24});
  EXPECT_THROW(cache.insert(3), Error);
  EXPECT_EQ(cache.occupied(), 0);
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

// In a steady state the cache holds the bytes of the formula and no more.
TEST(Cache, HoldsWhatTheFormulaSays) {
  const CacheOptions options{.geometry = HeadGeometry::uniform(4, 2, 64, 64), .page_size = 64, .track_rank = true};
  Cache cache(options);
  cache.insert(1000);
  const auto pages = [](std::size_t n) { return n * 4 * 2 * 64 * (64 + 64) * 2; };
  EXPECT_EQ(cache.bytes_in_use(), pages(16));
  Victims plan;
  plan.drop.resize(1);
  for (int slot = 0; slot < 1000 - 255; ++slot) plan.drop[0].push_back(slot);
  cache.apply(plan);
  EXPECT_EQ(cache.bytes_in_use(), pages(16)) << "as many may come as have left";
  cache.insert(1);
  plan.drop[0] = {999};
  cache.apply(plan);  // evicts all but one token: the pages are returned
  EXPECT_EQ(cache.bytes_in_use(), pages(5));
  EXPECT_EQ(cache.bytes_peak(), pages(16));
  EXPECT_EQ(cache.evicted(), 746);
  const std::size_t slots = static_cast<std::size_t>(cache.table(0).slots());
  EXPECT_GE(cache.bytes_tables(), slots * (4 + 4 + 4) + slots / 64 * (4 + 4 * 2 * 4));
  cache.clear();
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace palimpsest::testing
