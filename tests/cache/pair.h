// A cache and its naive twin; every step does the same, at random, to both.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/cache/naive_cache.h"

namespace palimpsest::testing {

class Pair {
 public:
  Pair(const CacheOptions& options, unsigned seed, std::shared_ptr<PagePool> pool = nullptr)
      : random_(seed),
        cache_(options, std::move(pool)),
        naive_(cache_.tables(), options.mechanism == Mechanism::kBlock ? options.page_size : 0) {}

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
    check();
  }
  void check() { expect_same(cache_, naive_); }
  Cache& cache() { return cache_; }
  bool can_share(const Pair& other) const { return other.cache_.options() == cache_.options() || other.cache_.whole(); }
  void share(Pair& other) {
    const bool alike = other.cache_.options() == cache_.options();
    cache_.share(other.cache_);
    if (alike)
      naive_ = other.naive_;
    else
      naive_.take_in(other.naive_, cache_.tables() > 1 && other.cache_.tables() > 1 &&
                                       cache_.options().columns == other.cache_.options().columns);
    inserted_ = other.inserted_;
    dropped_ = other.dropped_;
  }

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
  // A policy's doing: some scores change, in the column and in the model, and the statistics beside them.
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
  Workers workers_{2};
  Cache cache_;
  NaiveCache naive_;
  int inserted_ = 0;
  long long dropped_ = 0;
};

}  // namespace palimpsest::testing
