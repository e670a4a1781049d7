// Each memory acquisition of a cache change fails once; each time the cache is unchanged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "palimpsest/cache/cache.h"
#include "tests/cache/failing_memory.h"
#include "tests/cache/herd.h"

namespace palimpsest::testing {
namespace {

std::vector<std::byte> bytes_of(const Cache& cache) {
  std::vector<std::byte> all;
  ByteWriter out([&](std::span<const std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  cache.save(out);
  return all;
}

void fill(const Cache& cache) {
  std::byte next{1};
  for (const PageId page : cache.pages()) {
    std::memset(cache.pool()->address(page), static_cast<int>(next), cache.pool()->bytes_of(page));
    next = static_cast<std::byte>(static_cast<int>(next) + 1);
  }
}

class CacheWithoutMemory : public ::testing::TestWithParam<Mechanism> {
 protected:
  CacheOptions options() const {
    return {.geometry = two_layers({3, 5}, {6, 9}),
            .mechanism = GetParam(),
            .shared = GetParam() != Mechanism::kMerge,
            .track_rank = true,
            .columns = 1};
  }
};

// Drops tokens of a cache that shares all its pages: each of its acquisitions fails once.
TEST_P(CacheWithoutMemory, AFailedDropChangesNothing) {
  for (long long n = 1;; ++n) {
    SCOPED_TRACE("acquisition " + std::to_string(n));
    Cache cache(options());
    cache.insert(100);
    fill(cache);
    const auto other = cache.fork();
    Victims plan;
    plan.drop.resize(static_cast<std::size_t>(cache.tables()));
    for (auto& victims : plan.drop) victims = {3, 17, 18, 40};
    const auto before = bytes_of(cache);
    bool failed = false;
    {
      const FailingMemory memory(n);
      try {
        cache.apply(plan);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
    if (!failed) break;
    ASSERT_EQ(cache.occupied(), 100);
    ASSERT_EQ(cache.evicted(), 0);
    ASSERT_TRUE(bytes_of(cache) == before);
    ASSERT_TRUE(bytes_of(*other) == before);
    cache.apply(plan);
    ASSERT_EQ(cache.occupied(), 96);
  }
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, CacheWithoutMemory,
                         ::testing::Values(Mechanism::kInPlace, Mechanism::kShift, Mechanism::kGather,
                                           Mechanism::kBlock, Mechanism::kAppend, Mechanism::kMerge));

// PALIMPSEST_CACHE_OPERATIONS=1000000 sets the number of operations; PALIMPSEST_CACHE_HERD=n starts with the n-th herd
// and checks all caches after each operation.
TEST(CachesUnderFailure, AreAsBeforeAfterEachRollback) {
  const char* const wanted = std::getenv("PALIMPSEST_CACHE_OPERATIONS");
  const int operations = wanted == nullptr ? 4000 : std::atoi(wanted);
  const char* const first = std::getenv("PALIMPSEST_CACHE_HERD");
  constexpr auto& kTypes = kCacheTypes;
  constexpr int kHerd = 500;  // operations per herd
  Pair::counts() = {};
  long long forks = 0, copied = 0;
  for (int done = 0, seed = first == nullptr ? 1 : std::atoi(first); done < operations && !HasFatalFailure();
       done += kHerd, ++seed) {
    Herd herd(kTypes[seed % 4], kTypes[seed / 4 % 4], seed % 3 == 0 ? 48 : 16, static_cast<unsigned>(seed), true);
    for (int i = 0; i < kHerd && !HasFatalFailure(); ++i) {
      SCOPED_TRACE("herd " + std::to_string(seed) + " operation " + std::to_string(i));
      herd.step();
      if (i % 8 == 0 || first != nullptr) herd.check();
    }
    if (HasFatalFailure()) return;
    herd.check();
    forks += herd.forks + herd.crossings;
    copied += static_cast<long long>(herd.pool->pages_copied());
    herd.pairs.clear();
    ASSERT_EQ(herd.pool->pages_in_use(), 0u);
  }
  const PairCounts& n = Pair::counts();
  std::cout << operations << " operations, " << n.changes << " changes, " << n.failures << " failed acquisitions, "
            << n.rollbacks << " rollbacks, " << n.drafts << " drafts, " << n.rejected << " rejected, " << n.edits
            << " edits, " << n.refused << " refused, " << n.merged << " merged tokens, " << forks << " forks, "
            << copied << " pages copied\n";
  for (const long long count : {n.failures, n.rollbacks, n.drafts, n.rejected, n.edits, forks, copied})
    EXPECT_GT(count, operations / 100);
  EXPECT_GT(n.merged, operations / 200);
  EXPECT_GT(n.refused, operations / 1000);
}

}  // namespace
}  // namespace palimpsest::testing
