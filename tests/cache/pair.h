// A cache and its naive model; each step applies the same random operation to both.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/thread_pool.h"
#include "tests/cache/failing_memory.h"
#include "tests/cache/same_cache.h"
#include "tests/cache/state.h"

namespace palimpsest::testing {

// Numbers of operations, over all pairs.
struct PairCounts {
  long long changes = 0, failures = 0, rollbacks = 0, drafts = 0, rejected = 0, edits = 0, refused = 0, merged = 0;
};

class Pair {
 public:
  // `failures`: before each change succeeds, its memory acquisitions fail and it is rolled back.
  Pair(const CacheOptions& options, unsigned seed, std::shared_ptr<PagePool> pool = nullptr, bool failures = false)
      : random_(seed),
        failures_(failures),
        cache_(options, std::move(pool)),
        naive_(cache_.tables(), options.mechanism == Mechanism::kBlock ? cache_.table(0).evicted_page() : 0) {}

  void step() {
    const int what = below(100);
    if (what < 52)
      insert_and_drop();
    else if (what < 65)
      drop(below(4) == 0 ? 1000 : 1 + below(8));
    else if (what < 77)
      insert(1 + below(below(8) == 0 ? 60 : 4));
    else if (what < 81)
      undo();
    else if (what < 89)
      draft();
    else if (what < 92)
      edit();
    else if (what < 95)
      merge();
    else if (what < 98)
      defragment();
    else if (what < 99)
      resume();
    else if (below(4) == 0)
      clear();
    score();
    check();
  }
  void check() {
    expect_same(cache_, naive_);
    if (::testing::Test::HasFatalFailure()) GTEST_FAIL() << "after: " << last_;
  }
  Cache& cache() { return cache_; }
  bool can_share(const Pair& other) const {
    return other.cache_.options() == cache_.options() || other.cache_.nothing_evicted();
  }
  void share(Pair& other) {
    const bool alike = other.cache_.options() == cache_.options();
    unless_it_fails([&] { cache_.share(other.cache_); });
    if (alike)
      naive_ = other.naive_;
    else
      naive_.take_in(other.naive_, !cache_.options().shared && !other.cache_.options().shared &&
                                       cache_.options().columns == other.cache_.options().columns);
    inserted_ = other.inserted_;
    dropped_ = other.dropped_;
  }
  static PairCounts& counts() {
    static PairCounts counts;
    return counts;
  }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  Workers* any_workers() { return below(8) == 0 ? &workers_ : nullptr; }

  // Lets the acquisitions of `act` fail, each in order or a random one, and checks that nothing changes. Then `act`
  // succeeds.
  template <typename Act>
  void unless_it_fails(Act act) {
    ++counts().changes;
    const int how = failures_ ? below(8) : 8;
    if (how < 4) {
      const State before(cache_);
      for (long long n = how == 0 ? 1 : 1 + below(12);; ++n) {
        bool failed = false;
        {
          const FailingMemory memory(n);
          try {
            act();
          } catch (const std::bad_alloc&) {
            failed = true;
          }
        }
        if (!failed) return;
        ++counts().failures;
        ASSERT_TRUE(State(cache_) == before) << "acquisition " << n << " failed";
        if (how > 0) break;
      }
    }
    act();
  }

  // `prepare` gives a Transaction.
  template <typename Prepare>
  void commit(Prepare prepare) {
    if (failures_ && below(8) == 0) {
      const State before(cache_);
      { const Transaction change = prepare(); }
      ++counts().rollbacks;
      ASSERT_TRUE(State(cache_) == before) << "rolled back";
    }
    Workers* const workers = any_workers();
    unless_it_fails([&] {
      Transaction change = prepare();
      if (!failures_) return change.commit(workers);
      const FailingMemory memory(0);
      change.commit(workers);
      EXPECT_EQ(memory.acquisitions(), 0) << "commit takes no memory";
    });
  }
  void change(const CacheChange& change) {
    remember(change);
    commit([&] { return cache_.prepare(change); });
  }

  // For failure messages: the cache's options and its last operations.
  void remember(const CacheChange& c) {
    const CacheOptions& o = cache_.options();
    std::size_t victims = 0;
    for (const auto& drop : c.drop) victims += drop.size();
    last_ = fmt::format(
        "mechanism {}{}, page {}; reject {}, drop {}, range {}..{}, shift {}..{} by {}, insert {} at {}",
        static_cast<int>(o.mechanism), o.shared ? " shared" : "", o.page_size, c.reject, victims, c.drop_range.first,
        c.drop_range.last, c.shift_range.first, c.shift_range.last, c.shift_by, c.insert, c.at);
  }

  void insert_and_drop() {  // the decode step
    if (cache_.options().mechanism == Mechanism::kBlock && below(3) > 0)
      drop_pages();
    else if (cache_.occupied() > 20 + below(60)) {
      if (below(2) == 0) {  // in one change
        const Victims plan = any_plan(1 + below(2));
        remove_merged(plan);
        change({.drop = plan.drop, .insert = 1});
        dropped_in_naive(plan);
        return inserted(1);
      }
      drop(1 + below(2));
    }
    insert(1);
  }
  // One or two full pages of each table, if there are more than two.
  void drop_pages() {
    Victims plan = no_victims();
    for (int t = 0; t < cache_.tables(); ++t) {
      const SlotTable& table = cache_.table(t);
      std::vector<int> full;
      for (int page = 0; page < table.evicted_pages(); ++page)
        if (table.occupied_in_evicted(page) == table.evicted_page()) full.push_back(page);
      if (full.size() <= 2) continue;
      std::ranges::shuffle(full, random_);
      full.resize(static_cast<std::size_t>(1 + below(2)));
      for (const int page : full)
        for (int i = 0; i < table.evicted_page(); ++i)
          plan.drop[static_cast<std::size_t>(t)].push_back(page * table.evicted_page() + i);
    }
    const Positions gone = positions_of(plan);
    change({.drop = plan.drop});
    drop_in_naive(gone);
    for (int t = 0; t < cache_.tables(); ++t) ASSERT_TRUE(cache_.moves(t).empty()) << "a page that leaves moves nobody";
  }
  void insert(int count) {
    change({.insert = count});
    inserted(count);
  }
  void inserted(int count) { inserted(count, naive_.next()); }
  void inserted(int count, Position at) {
    naive_.insert(count, at);
    if (cache_.options().pages) write_fresh(cache_, naive_);
    inserted_ = count;
  }

  using Positions = std::vector<std::vector<Position>>;
  Victims no_victims() const {
    Victims plan;
    plan.drop.resize(static_cast<std::size_t>(cache_.tables()));
    return plan;
  }
  // Up to `most` tokens of each table, except the newest `but`.
  Victims any_plan(int max, int but = 0) {
    Victims plan = no_victims();
    for (int t = 0; t < cache_.tables(); ++t) {
      const auto position = cache_.table(t).position();
      const auto newest = cache_.table(t).inserted().last(static_cast<std::size_t>(but));
      std::vector<int> occupied;
      for (int s = 0; s < cache_.table(t).slots(); ++s)
        if (position[static_cast<std::size_t>(s)] != kNoPosition && std::ranges::find(newest, s) == newest.end())
          occupied.push_back(s);
      std::ranges::shuffle(occupied, random_);
      occupied.resize(static_cast<std::size_t>(below(std::min(max, static_cast<int>(occupied.size())) + 1)));
      std::ranges::sort(occupied, {}, [&](int s) { return position[static_cast<std::size_t>(s)]; });
      plan.drop[static_cast<std::size_t>(t)] = occupied;
    }
    pending_ = positions_of(plan);
    return plan;
  }
  Positions positions_of(const Victims& plan) const {
    Positions gone(plan.drop.size());
    for (int t = 0; t < cache_.tables(); ++t)
      for (const int s : plan.drop[static_cast<std::size_t>(t)])
        gone[static_cast<std::size_t>(t)].push_back(cache_.table(t).position()[static_cast<std::size_t>(s)]);
    return gone;
  }
  void drop_in_naive(const Positions& gone) {
    for (int t = 0; t < cache_.tables(); ++t) {
      const auto& positions = gone[static_cast<std::size_t>(t)];
      naive_.drop(t, positions);
      if (counts(t)) dropped_ += static_cast<long long>(positions.size());
      if (!positions.empty()) inserted_ = 0;
    }
  }
  void dropped_in_naive(const Victims&) { drop_in_naive(pending_); }
  void drop(int max) {
    const Victims plan = any_plan(max);
    remove_merged(plan);
    change({.drop = plan.drop});
    dropped_in_naive(plan);
    long long tables = 0;
    for (int t = 0; t < cache_.tables(); ++t) tables += counts(t) ? 1 : 0;
    ASSERT_EQ(cache_.evicted(), dropped_ / tables);
  }
  // Drops from tables with a window count as evicted only if no table keeps all tokens.
  bool counts(int t) const {
    const auto& windows = cache_.options().windows;
    return cache_.window(t) == INT32_MAX || std::ranges::count(windows, INT32_MAX) == 0;
  }
  // Tokens merged into a victim are dropped with it; the engine does this before the drop.
  void remove_merged(const Victims& plan) {
    for (int t = 0; t < cache_.tables(); ++t) {
      if (cache_.merged(t) == nullptr) return;
      std::vector<bool> gone(static_cast<std::size_t>(cache_.table(t).slots()));
      for (const int s : plan.drop[static_cast<std::size_t>(t)]) gone[static_cast<std::size_t>(s)] = true;
      cache_.merged(t)->remove(gone);
      cache_.merged(t)->build_layout(cache_.table(t));
      std::erase_if(naive_.merged(t), [&](const NaiveMerged& each) {
        return std::ranges::count(pending_[static_cast<std::size_t>(t)], each.into) > 0;
      });
    }
  }
  void undo() {
    const int count = below(inserted_ + 1);
    change({.reject = count});
    naive_.undo(count);
    inserted_ -= count;
  }
  // Drafts, some of which the next change rejects; it also drops the victims that make room for the others.
  void draft() {
    const int count = 1 + below(12);
    change({.insert = count});
    inserted(count);
    check();
    if (::testing::Test::HasFatalFailure()) return;
    counts().drafts += count;
    const int rejected = below(count + 1);
    counts().rejected += rejected;
    const Victims plan = below(2) == 0 ? no_victims() : any_plan(count - rejected, count);
    const Positions gone = positions_of(plan);
    pending_ = gone;
    remove_merged(plan);
    const int more = below(3);
    change({.reject = rejected, .drop = plan.drop, .insert = more});
    naive_.undo(rejected);
    inserted_ -= rejected;
    drop_in_naive(gone);
    if (more > 0) inserted(more);
  }
  bool holds_merged() {
    bool any = false;
    for (int t = 0; t < cache_.tables(); ++t) any = any || !naive_.merged(t).empty();
    return any;
  }
  // Replaces a range of the text by one of any length, drops its end, or makes an edit that is refused.
  void edit() {
    const auto text = static_cast<int>(std::min<Position>(naive_.next(), 200));
    const Position first = naive_.next() - below(text + 1);
    const Position last = first + below(12);
    const PositionRange range{first, last};
    ++counts().edits;
    const int what = below(4);
    if (what == 0 || holds_merged()) {  // drops a range, possibly to the end
      const bool end = below(3) == 0;
      const PositionRange gone{first, end ? kEndOfText : last};
      if (gone.empty()) return;
      if (holds_merged()) return refused({.drop_range = gone});
      change({.drop_range = gone});
      naive_.drop_range(gone, end || last >= naive_.next());
      inserted_ = 0;
      return;
    }
    const int count = below(6);
    const Position by = count - (std::min(last, naive_.next()) - first);
    const PositionRange behind{last, kEndOfText};
    if (what == 1 && count > 0 && any_token({first, first + count})) return refused({.insert = count, .at = first});
    if (last >= naive_.next() || count == 0) return;
    CacheChange both{.drop_range = range, .shift_range = behind, .shift_by = by, .insert = count, .at = first};
    if (what == 2) {  // one by one
      change({.drop_range = range});
      naive_.drop_range(range, false);
      change({.shift_range = behind, .shift_by = by});
      naive_.shift(behind, by);
      inserted_ = 0;
      check();
      if (::testing::Test::HasFatalFailure()) return;
      change({.insert = count, .at = first});
    } else {
      change(both);
      naive_.drop_range(range, false);
      naive_.shift(behind, by);
    }
    inserted(count, first);
  }
  bool any_token(PositionRange range) {
    for (int t = 0; t < cache_.tables(); ++t)
      for (const NaiveToken& token : naive_.table(t))
        if (range.contains(token.position)) return true;
    return false;
  }
  void refused(const CacheChange& change) {
    ++counts().refused;
    const State before(cache_);
    EXPECT_THROW(cache_.prepare(change).commit(), Error);
    ASSERT_TRUE(State(cache_) == before);
  }
  // Merges some victims into other tokens, then drops them.
  void merge() {
    if (cache_.merged(0) == nullptr || cache_.occupied() < 4) return;
    const Victims plan = any_plan(3);
    const Positions gone = pending_;
    commit([&] { return cache_.prepare({.drop = plan.drop}); },
           [&] {
             for (int t = 0; t < cache_.tables(); ++t) merge_table(t, plan.drop[static_cast<std::size_t>(t)]);
           });
    drop_in_naive(gone);
  }
  template <typename Prepare, typename Before>
  void commit(Prepare prepare, Before before_commit) {
    unless_it_fails([&] { const Transaction change = prepare(); });
    Transaction change = prepare();
    before_commit();
    change.commit();
  }
  void merge_table(int t, const std::vector<int>& victims) {
    SlotTable& table = cache_.table(t);
    MergedTokens& merged = *cache_.merged(t);
    std::vector<bool> gone(static_cast<std::size_t>(table.slots()));
    for (const int s : victims) gone[static_cast<std::size_t>(s)] = true;
    std::vector<int> stay;
    for (int s = 0; s < table.slots(); ++s)
      if (table.position()[static_cast<std::size_t>(s)] != kNoPosition && !gone[static_cast<std::size_t>(s)])
        stay.push_back(s);
    merged.reserve(64, 64, false, 0);
    for (const int victim : victims) {
      if (stay.empty() || below(3) == 0) continue;
      const int into = stay[static_cast<std::size_t>(below(static_cast<int>(stay.size())))];
      const float factor = 0.5F + static_cast<float>(below(8)) / 4;
      const auto v = static_cast<std::size_t>(victim);
      naive_.merge(t, table.position()[v], table.position()[static_cast<std::size_t>(into)], factor);
      std::vector<float> statistics;
      for (int c = 0; c < table.columns(); ++c) statistics.push_back(table.column(c)[v]);
      std::vector<MergedTokens::Joining> joining(gone.size());
      joining[v] = {into, factor};
      merged.merge(joining);
      merged.add({.position = table.position()[v], .slot = into, .factor = factor, .score = table.score()[v]},
                 statistics);
      gone[v] = false;
      ++counts().merged;
    }
    merged.remove(gone);
    merged.build_layout(table);
  }
  void defragment() {
    const int reserve = below(40);
    commit([&] { return cache_.prepare_defragment(reserve); });
  }
  void resume() {
    const Position to = naive_.next() + (below(2) == 0 ? below(100) : Position{1} << (28 + below(3)));
    if (to == naive_.next() || (to > Position{1} << 30 && !cache_.options().windows.empty())) return;
    change({.at = to});
    naive_.set_next(to);
    inserted_ = 0;
  }
  void clear() {
    cache_.clear();
    naive_.clear();
    inserted_ = 0;
    ASSERT_EQ(cache_.bytes_in_use(), 0u);
  }
  // As a policy does: changes some scores and statistics, in the cache and in the model.
  void score() {
    for (int t = 0; t < cache_.tables(); ++t) {
      if (naive_.table(t).empty()) continue;
      auto& token = naive_.table(t)[static_cast<std::size_t>(below(static_cast<int>(naive_.table(t).size())))];
      token.score = static_cast<float>(1 + below(1000));
      SlotTable& table = cache_.table(t);
      const auto slot =
          static_cast<std::size_t>(std::ranges::find(table.position(), token.position) - table.position().begin());
      table.score()[slot] = token.score;
      for (int c = 0; c < table.columns(); ++c) table.column(c)[slot] = NaiveToken::column(token.score, c);
    }
  }

  std::mt19937 random_;
  bool failures_;
  ThreadPool workers_{2};
  Cache cache_;
  NaiveCache naive_;
  Positions pending_;  // of the last plan
  std::string last_;
  int inserted_ = 0;
  long long dropped_ = 0;
};

}  // namespace palimpsest::testing
