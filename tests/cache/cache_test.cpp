// Random operations on Cache and on the naive model, compared after each.
#include "palimpsest/cache/cache.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/cache/naive_cache.h"

namespace palimpsest::testing {
namespace {

struct Variant {
  Mechanism mechanism;
  bool shared, pages;
  int page_size;
  CacheType type;
};

std::string name_of(const ::testing::TestParamInfo<Variant>& info) {
  const Variant& v = info.param;
  return std::string(v.mechanism == Mechanism::kShift    ? "Shift"
                     : v.mechanism == Mechanism::kGather ? "Gather"
                     : v.mechanism == Mechanism::kBlock  ? "Block"
                     : v.mechanism == Mechanism::kAppend ? "Append"
                                                         : "InPlace") +
         (v.shared ? "Shared" : "PerHead") + (v.pages ? "" : "NoPages") + "Page" + std::to_string(v.page_size) +
         (v.type == CacheType::kF32   ? "F32"
          : v.type == CacheType::kF16 ? "F16"
                                      : "BF16");
}

CacheOptions options_of(const Variant& v) {
  return {.layers = 2,
          .kv_heads = 2,
          .head_dim = 3,
          .value_dim = 5,
          .type = v.type,
          .page_size = v.page_size,
          .mechanism = v.mechanism,
          .shared = v.shared,
          .track_rank = true,
          .pages = v.pages};
}

// A cache, its naive twin and one pool; every step does the same to both.
class Pair {
 public:
  Pair(const Variant& v, unsigned seed)
      : random_(seed),
        cache_(options_of(v)),
        naive_(cache_.tables(), v.mechanism == Mechanism::kBlock ? v.page_size : 0) {}

  void step() {
    const int what = below(100);
    if (what < 60)
      insert_and_drop();
    else if (what < 75)
      drop(below(4) == 0 ? 1000 : 1 + below(8));
    else if (what < 90)
      insert(1 + below(below(8) == 0 ? 60 : 4));
    else if (what < 96)
      undo();
    else if (what < 98)
      cache_.gather_up(below(40), below(2) == 0 ? nullptr : &workers_);
    else if (what < 99)
      resume();
    else if (below(4) == 0)
      clear();
    score();
    expect_same(cache_, naive_);
  }
  Cache& cache() { return cache_; }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  void insert_and_drop() {  // the decode step
    if (cache_.options().mechanism == Mechanism::kBlock && below(3) > 0)
      drop_pages();
    else if (cache_.live() > 20 + below(60))
      drop(1 + below(2));
    insert(1);
  }
  // One or two full pages of each table, if there are more than two.
  void drop_pages() {
    Plan plan;
    plan.drop.resize(static_cast<std::size_t>(cache_.tables()));
    for (int t = 0; t < cache_.tables(); ++t) {
      const SlotTable& table = cache_.table(t);
      std::vector<int> full;
      for (int page = 0; page < table.pages(); ++page)
        if (table.live_in_page(page) == table.page_size()) full.push_back(page);
      if (full.size() <= 2) continue;
      std::ranges::shuffle(full, random_);
      full.resize(static_cast<std::size_t>(1 + below(2)));
      auto& victims = plan.drop[static_cast<std::size_t>(t)];
      for (const int page : full)
        for (int i = 0; i < table.page_size(); ++i) victims.push_back(page * table.page_size() + i);
      std::vector<Position> gone;
      for (const int s : victims) gone.push_back(table.position()[static_cast<std::size_t>(s)]);
      naive_.drop(t, gone);
      dropped_ += static_cast<long long>(gone.size());
      inserted_ = 0;
    }
    cache_.apply(plan, below(2) == 0 ? nullptr : &workers_);
    for (int t = 0; t < cache_.tables(); ++t) ASSERT_TRUE(cache_.moves(t).empty()) << "a page that leaves moves nobody";
  }
  void insert(int count) {
    cache_.insert(count);
    naive_.insert(count);
    if (cache_.options().pages) write_fresh(cache_, naive_);
    inserted_ = count;
  }
  void drop(int most) {
    Plan plan;
    plan.drop.resize(static_cast<std::size_t>(cache_.tables()));
    for (int t = 0; t < cache_.tables(); ++t) {
      const auto position = cache_.table(t).position();
      std::vector<int> live;
      for (int s = 0; s < cache_.table(t).slots(); ++s)
        if (position[static_cast<std::size_t>(s)] != kNoPosition) live.push_back(s);
      std::ranges::shuffle(live, random_);
      live.resize(static_cast<std::size_t>(below(std::min(most, static_cast<int>(live.size())) + 1)));
      std::ranges::sort(live, {}, [&](int s) { return position[static_cast<std::size_t>(s)]; });
      std::vector<Position> gone;
      for (const int s : live) gone.push_back(position[static_cast<std::size_t>(s)]);
      naive_.drop(t, gone);
      dropped_ += static_cast<long long>(gone.size());
      plan.drop[static_cast<std::size_t>(t)] = live;
      if (!live.empty()) inserted_ = 0;
    }
    cache_.apply(plan, below(2) == 0 ? nullptr : &workers_);
    ASSERT_EQ(cache_.evicted(), dropped_ / cache_.tables());
  }
  void undo() {
    const int count = below(inserted_ + 1);
    cache_.undo(count);
    naive_.undo(count);
    inserted_ -= count;
  }
  void resume() {
    const Position to = naive_.next() + (below(2) == 0 ? below(100) : Position{1} << (28 + below(3)));
    cache_.resume_at(to);
    naive_.resume_at(to);
    inserted_ = 0;
  }
  void clear() {
    cache_.clear();
    naive_.clear();
    inserted_ = 0;
    ASSERT_EQ(cache_.bytes_in_use(), 0u);
  }
  // A policy's doing: some scores change, in the column and in the model.
  void score() {
    for (int t = 0; t < cache_.tables(); ++t) {
      if (naive_.table(t).empty()) continue;
      auto& token = naive_.table(t)[static_cast<std::size_t>(below(static_cast<int>(naive_.table(t).size())))];
      token.score = static_cast<float>(below(1000));
      const auto position = cache_.table(t).position();
      cache_.table(t)
          .score()[static_cast<std::size_t>(std::ranges::find(position, token.position) - position.begin())] =
          token.score;
    }
  }

  std::mt19937 random_;
  Workers workers_{2};
  Cache cache_;
  NaiveCache naive_;
  int inserted_ = 0;
  long long dropped_ = 0;
};

class CacheAgainstNaive : public ::testing::TestWithParam<Variant> {};

TEST_P(CacheAgainstNaive, RandomOperations) {
  Pair pair(GetParam(), 1);
  for (int i = 0; i < 9000 && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    pair.step();
  }
  EXPECT_GT(pair.cache().evicted(), 1000);
}

constexpr auto kIn = Mechanism::kInPlace;
constexpr auto kSh = Mechanism::kShift;
constexpr auto kGa = Mechanism::kGather;
constexpr auto kBl = Mechanism::kBlock;
constexpr auto kAp = Mechanism::kAppend;
INSTANTIATE_TEST_SUITE_P(
    Variants, CacheAgainstNaive,
    ::testing::Values(Variant{kIn, true, true, 16, CacheType::kF16}, Variant{kIn, true, true, 64, CacheType::kF32},
                      Variant{kIn, true, false, 32, CacheType::kF16}, Variant{kIn, true, true, 256, CacheType::kBF16},
                      Variant{kIn, false, true, 16, CacheType::kF32}, Variant{kIn, false, true, 48, CacheType::kF16},
                      Variant{kIn, false, false, 16, CacheType::kF16}, Variant{kSh, true, true, 16, CacheType::kF16},
                      Variant{kSh, true, true, 64, CacheType::kF32}, Variant{kSh, true, false, 16, CacheType::kF16},
                      Variant{kSh, false, true, 16, CacheType::kBF16}, Variant{kSh, false, true, 32, CacheType::kF32},
                      Variant{kGa, true, true, 16, CacheType::kF16}, Variant{kGa, false, true, 32, CacheType::kBF16},
                      Variant{kGa, false, true, 64, CacheType::kF32}, Variant{kGa, false, false, 16, CacheType::kF16},
                      Variant{kBl, true, true, 16, CacheType::kF16}, Variant{kBl, false, true, 16, CacheType::kF32},
                      Variant{kBl, false, true, 32, CacheType::kBF16}, Variant{kBl, false, false, 16, CacheType::kF16},
                      Variant{kAp, true, true, 16, CacheType::kF16}, Variant{kAp, false, true, 16, CacheType::kF32},
                      Variant{kAp, false, true, 48, CacheType::kF16}, Variant{kAp, true, false, 32, CacheType::kF16}),
    name_of);

}  // namespace
}  // namespace palimpsest::testing
