// Caches that share pages of one pool, each with its naive model. After each operation all are checked: no cache sees
// another's writes, each page's reference count is the number of caches that hold it, no page is leaked.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "palimpsest/cache/formats/formats.h"
#include "tests/cache/pair.h"
#include "tests/cache/two_layers.h"

namespace palimpsest::testing {

struct Herd {
  // Every other seed: the second layer's heads are wider, so that its pages have another size.
  Herd(CacheType type, CacheType value_type, int page_size, unsigned seed, bool failures = false)
      : page_size(page_size), failures(failures), random(seed) {
    const Widths widths = {kv_format(type).elementwise() ? 3 : 32, kv_format(value_type).elementwise() ? 5 : 32};
    geometry = two_layers(widths, seed % 2 == 0 ? widths : Widths{2 * widths.key, 3 * widths.value})
                   .with_types(type, value_type);
    pool = make_pool(some_options());
    if (failures)
      pool->before_acquisition([] {
        if (!FailingMemory::acquire()) throw std::bad_alloc();
      });
    for (int i = 0; i < 3; ++i) add();
  }
  int below(std::size_t n) { return std::uniform_int_distribution<int>(0, static_cast<int>(n) - 1)(random); }
  Pair& any() { return *pairs[static_cast<std::size_t>(below(pairs.size()))]; }

  CacheOptions some_options() {
    const auto mechanism = static_cast<Mechanism>(below(6));
    constexpr std::int32_t kAll = INT32_MAX,
                           kFar = INT32_MAX - 1;  // longer than these texts: edits are not refused
    const std::vector<std::int32_t> windows[] = {{}, {}, {kFar, kFar, kAll, kAll}, {kFar, kFar, kFar, kFar}};
    const bool ranks = below(2) == 0;
    return {.geometry = geometry,
            .page_size = page_size,
            .evicted_page = mechanism == Mechanism::kBlock && below(2) == 0 ? 8 : 0,
            .mechanism = mechanism,
            .shared = mechanism != Mechanism::kMerge && below(2) == 0,
            .track_rank = ranks,
            .original_until = ranks && below(2) == 0 ? 1 + below(300) : 0,
            .columns = below(2),
            .windows = windows[static_cast<std::size_t>(below(4))]};
  }
  void add(const CacheOptions& options) { pairs.push_back(std::make_unique<Pair>(options, random(), pool, failures)); }
  void add() { add(some_options()); }

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
        add(from.cache().options());
        pairs.back()->share(from);
        ++forks;
      } else if (&from != &to && to.can_share(from)) {
        ++(from.cache().options() == to.cache().options() ? forks : crossings);
        to.share(from);
      }
    }
  }
  void check() {
    std::set<PageId> pages;
    for (auto& pair : pairs) {
      pair->check();
      for (const PageId page : pair->cache().pages()) pages.insert(page);
    }
    ASSERT_EQ(pool->pages_in_use(), pages.size());
  }

  HeadGeometry geometry;
  int page_size;
  bool failures;
  std::mt19937 random;
  std::shared_ptr<PagePool> pool;
  std::vector<std::unique_ptr<Pair>> pairs;
  int forks = 0, crossings = 0;
};

}  // namespace palimpsest::testing
