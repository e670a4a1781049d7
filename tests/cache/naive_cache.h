// The cache as anyone would write it: per slot table a list of tokens, oldest first. The truth that Cache is held to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {

struct NaiveToken {
  Position position;
  std::uint32_t id;  // stands for its key and value: every element's bytes are made from it
  float score = 0;
  static float column(float score, int c) { return score == 0 ? 0 : score + static_cast<float>(c + 1); }
  int page = 0;  // block: tokens that share a page have the same
};

class NaiveCache {
 public:
  // page_size: of mechanism block; else 0.
  explicit NaiveCache(int tables, int page_size = 0)
      : tables_(static_cast<std::size_t>(tables)), page_size_(page_size), closed_up_(tables_.size(), 0) {}

  std::vector<NaiveToken>& table(int t) { return tables_[static_cast<std::size_t>(t)]; }
  Position next() const { return next_; }

  void insert(int count) {
    for (int i = 0; i < count; ++i, ++next_, ++next_id_)
      for (auto& table : tables_) table.push_back({next_, next_id_, 0, page_of_next(table)});
  }
  // Tokens of a table by their page.
  static std::map<int, int> pages(const std::vector<NaiveToken>& table) {
    std::map<int, int> count;
    for (const NaiveToken& token : table) ++count[token.page];
    return count;
  }
  void drop(int t, const std::vector<Position>& gone) {
    std::map<int, int> going;
    std::erase_if(table(t), [&](const NaiveToken& token) {
      const bool goes = std::ranges::count(gone, token.position) > 0;
      if (goes) ++going[token.page];
      return goes;
    });
    for (const auto& [page, count] : going)
      if (count != page_size_) closed_up_[static_cast<std::size_t>(t)] = page_size_ > 0 ? 1 : 0;
  }
  // After a drop that was not of full pages, who shares a page is the cache's to say; all pages but one are full.
  bool closed_up(int t) { return std::exchange(closed_up_[static_cast<std::size_t>(t)], 0) != 0; }
  int new_page() { return next_page_++; }
  void undo(int count) {
    for (auto& table : tables_) table.resize(table.size() - static_cast<std::size_t>(count));
    next_ -= count;
  }
  void resume_at(Position position) { next_ = position; }
  // As if the tokens of `other`, which lost none, had come here.
  void take_in(NaiveCache& other, bool scores) {
    clear();
    insert(static_cast<int>(other.next_));
    for (std::size_t t = 0; t < tables_.size(); ++t)
      for (std::size_t i = 0; i < tables_[t].size(); ++i) {
        const NaiveToken& token = other.tables_[t % other.tables_.size()][i];
        tables_[t][i].id = token.id;
        if (scores) tables_[t][i].score = token.score;
      }
  }
  void clear() {
    for (auto& table : tables_) table.clear();
    next_ = 0;
    std::ranges::fill(closed_up_, 0);
  }

 private:
  // The one that is not full.
  int page_of_next(const std::vector<NaiveToken>& table) {
    if (page_size_ == 0) return 0;
    const std::map<int, int> counts = pages(table);
    const auto open = std::ranges::find_if(counts, [&](const auto& count) { return count.second < page_size_; });
    return open == counts.end() ? new_page() : open->first;
  }

  std::vector<std::vector<NaiveToken>> tables_;
  int page_size_, next_page_ = 0;
  std::vector<char> closed_up_;  // [table]
  Position next_ = 0;
  inline static std::uint32_t next_id_ = 1;  // no two tokens of a program have the same
};

// Element bytes of a token's key (d < head_dim) and value (d >= head_dim) in one head.
inline std::uint32_t pattern(std::uint32_t id, int head, int d) {
  std::uint32_t h = id * 2654435761U + static_cast<std::uint32_t>(head) * 40503U + static_cast<std::uint32_t>(d) * 97U;
  return h ^ (h >> 15);
}

// Calls visit(address, wanted bits) for every element of the token in `slot` of one head.
template <typename Visit>
void for_each_element(const LayerView& view, int head_in_layer, int head, int slot, std::uint32_t id, Visit visit) {
  const auto element = static_cast<std::size_t>(bytes_per_element(view.type));
  std::byte* page = view.head[head_in_layer].page[slot / view.page_size];
  ASSERT_NE(page, nullptr);
  const int offset = slot % view.page_size;
  for (int d = 0; d < view.head_dim; ++d) visit(page + key_index(view, offset, d) * element, pattern(id, head, d));
  for (int d = 0; d < view.value_dim; ++d)
    visit(page + value_offset(view) + (value_index(view, offset) + static_cast<std::size_t>(d)) * element,
          pattern(id, head, view.head_dim + d));
}

// What a kernel does in a step: writes the keys and values of the fresh slots of every head.
inline void write_fresh(const Cache& cache, NaiveCache& naive) {
  const CacheOptions& o = cache.options();
  for (int layer = 0; layer < o.layers; ++layer) {
    const LayerView view = cache.view(layer);
    const auto element = static_cast<std::size_t>(bytes_per_element(o.type));
    for (int h = 0; h < o.kv_heads; ++h) {
      const auto& tokens = naive.table(cache.table_of(layer, h));
      const SlotsView& slots = *view.head[h].slots;
      for (int i = 0; i < slots.fresh_count; ++i) {
        const auto& token = tokens[tokens.size() - static_cast<std::size_t>(slots.fresh_count - i)];
        for_each_element(view, h, layer * o.kv_heads + h, slots.fresh[i], token.id,
                         [&](std::byte* at, std::uint32_t bits) { std::memcpy(at, &bits, element); });
      }
    }
  }
}

// Block: who shares a page with whom.
inline void expect_same_pages(const SlotTable& table, NaiveCache& naive, int t) {
  const bool closed_up = naive.closed_up(t);
  std::map<int, int> known;  // page of the table -> of the model
  for (int slot = 0; slot < table.slots(); ++slot) {
    const Position position = table.position()[static_cast<std::size_t>(slot)];
    if (position == kNoPosition) continue;
    NaiveToken& token = *std::ranges::lower_bound(naive.table(t), position, {}, &NaiveToken::position);
    ASSERT_EQ(token.position, position);
    const int page = slot / table.page_size();
    if (!known.contains(page)) known[page] = closed_up ? naive.new_page() : token.page;
    if (closed_up) token.page = known[page];
    ASSERT_EQ(known[page], token.page) << "position " << token.position;
  }
  const std::map<int, int> counts = NaiveCache::pages(naive.table(t));
  ASSERT_EQ(known.size(), counts.size());
  ASSERT_LE(std::ranges::count_if(counts, [&](const auto& c) { return c.second < table.page_size(); }), 1);
}

// Everything that can be seen of `cache` agrees with `naive`.
inline void expect_same(const Cache& cache, NaiveCache& naive) {
  const CacheOptions& o = cache.options();
  ASSERT_EQ(cache.next(), naive.next());
  std::size_t pages = 0;
  if (o.mechanism == Mechanism::kBlock) {
    for (int t = 0; t < cache.tables(); ++t) expect_same_pages(cache.table(t), naive, t);
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (int layer = 0; layer < o.layers; ++layer) {
    const LayerView view = cache.view(layer);
    for (int h = 0; h < o.kv_heads; ++h) {
      const int t = cache.table_of(layer, h);
      const SlotTable& table = cache.table(t);
      const auto& tokens = naive.table(t);
      const SlotsView& slots = *view.head[h].slots;
      ASSERT_EQ(table.live(), static_cast<int>(tokens.size()));
      ASSERT_EQ(slots.live, table.live());
      ASSERT_EQ(slots.slots, table.slots());
      ASSERT_EQ(slots.slots % o.page_size, 0);
      std::vector<int> in_page(static_cast<std::size_t>(table.pages()), 0);
      int seen = 0;
      for (int slot = 0; slot < slots.slots; ++slot) {
        const Position position = table.position()[static_cast<std::size_t>(slot)];
        if (position == kNoPosition) {
          ASSERT_EQ(slots.when[slot], kDead);
          continue;
        }
        const auto found = std::ranges::lower_bound(tokens, position, {}, &NaiveToken::position);
        ASSERT_TRUE(found != tokens.end() && found->position == position) << "position " << position << " was dropped";
        ++seen;
        ++in_page[static_cast<std::size_t>(slot / o.page_size)];
        ASSERT_EQ(slots.when[slot], std::max<Position>(position - table.base(), SlotTable::kOldest));
        ASSERT_EQ(table.score()[static_cast<std::size_t>(slot)], found->score);
        for (int c = 0; c < table.columns(); ++c)
          ASSERT_EQ(table.column(c)[static_cast<std::size_t>(slot)], NaiveToken::column(found->score, c));
        if (o.track_rank) {
          ASSERT_EQ(slots.rank[slot], static_cast<int>(found - tokens.begin()));
        }
        if (o.mechanism == Mechanism::kShift || o.mechanism == Mechanism::kGather) {
          ASSERT_EQ(slot, static_cast<int>(found - tokens.begin()));
        }
        if (!o.pages) continue;
        bool same = true;
        for_each_element(view, h, layer * o.kv_heads + h, slot, found->id,
                         [&](const std::byte* at, std::uint32_t bits) {
                           same &= std::memcmp(at, &bits, static_cast<std::size_t>(bytes_per_element(o.type))) == 0;
                         });
        ASSERT_TRUE(same) << "another token's bytes in slot " << slot << " of head " << h << ", layer " << layer;
      }
      ASSERT_EQ(seen, table.live());  // with the search above: the same set, nobody twice
      for (int p = 0; p < table.pages(); ++p) {
        ASSERT_EQ(table.live_in_page(p), in_page[static_cast<std::size_t>(p)]);
        if (o.pages) {
          ASSERT_EQ(view.head[h].page[p] != nullptr, table.mapped(p));
        }
        if (table.mapped(p)) ++pages;
      }
      if (table.pages() > 0) {
        ASSERT_TRUE(table.mapped(table.pages() - 1)) << "an unmapped page at the end";
      }
    }
  }
  ASSERT_EQ(cache.bytes_in_use(), o.pages ? pages * page_bytes(cache.view(0)) : 0U);
}

}  // namespace palimpsest::testing
