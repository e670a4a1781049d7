// Caches that share pages: random operations on several of one pool, each with its naive twin. After each operation
// all are looked at: nobody saw what another wrote, every page has as many users as caches have it, none is lost.
#include <gtest/gtest.h>

#include <set>

#include "tests/cache/pair.h"

namespace palimpsest::testing {
namespace {

struct Herd {
  Herd(CacheType type, int page_size, unsigned seed) : type(type), page_size(page_size), random(seed) {
    CacheOptions any = some_options();
    pool = std::make_shared<PagePool>(page_bytes(Cache(any).view(0)));
    for (int i = 0; i < 3; ++i) add();
  }
  int below(std::size_t n) { return std::uniform_int_distribution<int>(0, static_cast<int>(n) - 1)(random); }
  Pair& any() { return *pairs[static_cast<std::size_t>(below(pairs.size()))]; }

  CacheOptions some_options() {
    return {.layers = 2,
            .kv_heads = 2,
            .head_dim = 3,
            .value_dim = 5,
            .type = type,
            .page_size = page_size,
            .mechanism = static_cast<Mechanism>(below(5)),
            .shared = below(2) == 0,
            .track_rank = below(2) == 0,
            .columns = below(2)};
  }
  void add() { pairs.push_back(std::make_unique<Pair>(some_options(), random(), pool)); }

  void step() {
    const int what = below(100);
    if (what < 80) {
      any().step();
    } else if (what < 84) {
      if (pairs.size() < 7) add();
    } else if (what < 88) {
      if (pairs.size() > 2) pairs.erase(pairs.begin() + below(pairs.size()));
    } else {
      Pair &from = any(), &to = any();
      if (what < 92 && pairs.size() < 7) {  // a fork
        pairs.push_back(std::make_unique<Pair>(from.cache().options(), random(), pool));
        pairs.back()->share(from);
        ++forks;
      } else if (&from != &to && to.can_share(from)) {
        ++(from.cache().options() == to.cache().options() ? forks : crossings);
        to.share(from);
      }
    }
  }
  void check() {
    std::set<const std::byte*> pages;
    for (auto& pair : pairs) {
      pair->check();
      for (const std::byte* page : pair->cache().pages()) pages.insert(page);
    }
    ASSERT_EQ(pool->pages_in_use(), pages.size());
  }

  CacheType type;
  int page_size;
  std::mt19937 random;
  std::shared_ptr<PagePool> pool;
  std::vector<std::unique_ptr<Pair>> pairs;
  int forks = 0, crossings = 0;
};

class CachesThatShare : public ::testing::TestWithParam<std::tuple<CacheType, int>> {};

TEST_P(CachesThatShare, SeeOnlyWhatIsTheirs) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    Herd herd(std::get<0>(GetParam()), std::get<1>(GetParam()), seed);
    for (int i = 0; i < 4000 && !HasFatalFailure(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " operation " + std::to_string(i));
      herd.step();
      herd.check();
    }
    EXPECT_GT(herd.forks, 100);
    EXPECT_GT(herd.crossings, 10);
    EXPECT_GT(herd.pool->pages_copied(), 500u);
    herd.pairs.clear();
    EXPECT_EQ(herd.pool->pages_in_use(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CachesThatShare,
                         ::testing::Combine(::testing::Values(CacheType::kF16, CacheType::kF32, CacheType::kBF16),
                                            ::testing::Values(16, 48)),
                         [](const auto& info) {
                           const CacheType type = std::get<0>(info.param);
                           return std::string(type == CacheType::kF16   ? "F16"
                                              : type == CacheType::kF32 ? "F32"
                                                                        : "BF16") +
                                  "Page" + std::to_string(std::get<1>(info.param));
                         });

// The price: a page is copied when one side writes in it, and only then.
TEST(CachesThatShareCopy, OnlyThePagesThatTheyWrite) {
  const CacheOptions options{.layers = 2, .kv_heads = 3, .head_dim = 8, .value_dim = 8};  // 6 heads, pages of 16
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(options).view(0)));
  Cache a(options, pool), b(options, pool);
  a.insert(40);  // 3 pages of each head, the last half full
  b.share(a);
  EXPECT_EQ(pool->pages_in_use(), 18u);
  EXPECT_EQ(b.live(), 40);
  b.insert(8);
  EXPECT_EQ(pool->pages_copied(), 6u) << "the last page of each head";
  a.insert(1);
  EXPECT_EQ(pool->pages_copied(), 6u) << "nobody else has it any more";
  Plan plan;
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

}  // namespace
}  // namespace palimpsest::testing
