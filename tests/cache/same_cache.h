// Compares a cache with its naive model: bookkeeping, pages and every byte of every token.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "palimpsest/cache/formats/formats.h"
#include "tests/cache/naive_cache.h"

namespace palimpsest::testing {

// Element bytes of a token's key (d < head_dim) and value (d >= head_dim) in one head.
inline std::uint32_t pattern(std::uint32_t id, int head, int d) {
  std::uint32_t h = id * 2654435761U + static_cast<std::uint32_t>(head) * 40503U + static_cast<std::uint32_t>(d) * 97U;
  return h ^ (h >> 15);
}

// Calls visit(address, expected bits, bytes) for every element of the token in `slot` of one head. In a tile of
// q8_0 or fewer bits, the scales follow the numbers.
template <typename Visit>
void for_each_element(const LayerView& view, int head_in_layer, int head, int slot, std::uint32_t id, Visit visit) {
  std::byte* page = view.head[head_in_layer].page[slot / view.page_size];
  ASSERT_NE(page, nullptr);
  const int offset = slot % view.page_size;
  const auto tile = static_cast<std::size_t>(kTile), lane = static_cast<std::size_t>(offset % kTile);
  // `stride`, `lane_stride`: from a dimension to the next and from a slot to the next, in elements.
  const auto elements = [&](CacheType type, std::byte* at, int dim, std::size_t stride, std::size_t lane_stride,
                            int salt) {
    const bool q8 = type == CacheType::kQ8_0;
    if (type == CacheType::kQ4_0 || type == CacheType::kQ4) {
      for (int i = 0; i < dim / 2; ++i)
        visit(at + (lane_stride == 1 ? nibbles::key_place(offset % kTile, i / 4 * 8 + i % 4).byte
                                     : nibbles::value_byte(offset % kTile, dim, i)),
              pattern(id, head, salt + i), 1);
      for (int d = 0; d < dim; d += nibbles::kGroup)
        visit(at + nibbles::scale_place(dim, offset % kTile, d), pattern(id, head, 1000 + salt + d), 2);
      return;
    }
    if (type == CacheType::kQ3 || type == CacheType::kQ2) {
      const auto planes = [&]<int kBits>() {
        for (int i = 0; i < dim * kBits / 8; ++i)
          visit(at + (lane_stride == 1 ? planes::key_byte(offset % kTile, i)
                                       : planes::value_byte<kBits>(offset % kTile, dim, i)),
                pattern(id, head, salt + i), 1);
        for (int d = 0; d < dim; d += planes::kGroup)
          visit(at + planes::scale_place<kBits>(dim, offset % kTile, d), pattern(id, head, 1000 + salt + d), 2);
      };
      type == CacheType::kQ3 ? planes.template operator()<3>() : planes.template operator()<2>();
      return;
    }
    const std::size_t bytes = q8 ? 1 : static_cast<std::size_t>(kv_format(type).tile_bytes) / tile;
    for (int d = 0; d < dim; ++d)
      visit(at + (static_cast<std::size_t>(d) * stride + lane * lane_stride) * bytes, pattern(id, head, salt + d),
            bytes);
    for (int d = 0; q8 && d < dim; d += q8_0::kGroup)
      visit(at + q8_0::scales_offset(dim) + (static_cast<std::size_t>(d / q8_0::kGroup) * tile + lane) * 2,
            pattern(id, head, 1000 + salt + d), 2);
  };
  elements(view.key_type, page + key_tile(view, offset), view.head_dim, tile, 1, 0);
  elements(view.value_type, page + value_tile(view, offset), view.value_dim, 1,
           static_cast<std::size_t>(view.value_dim), view.head_dim);
}

// Writes the keys and values of the newly inserted slots of every head, as a kernel does in a step.
inline void write_fresh(const Cache& cache, NaiveCache& naive) {
  const CacheOptions& o = cache.options();
  for (int layer = 0; layer < o.geometry.layers(); ++layer) {
    const LayerView view = cache.view(layer);
    for (int h = 0; h < view.kv_heads; ++h) {
      const auto& tokens = naive.table(cache.table_of(o.geometry.head(layer, h)));
      const SlotsView& slots = *view.head[h].slots;
      for (int i = 0; i < slots.inserted_count; ++i) {
        const auto& token = tokens[tokens.size() - static_cast<std::size_t>(slots.inserted_count - i)];
        for_each_element(view, h, o.geometry.head(layer, h), slots.inserted[i], token.id,
                         [&](std::byte* at, std::uint32_t bits, std::size_t bytes) { std::memcpy(at, &bits, bytes); });
      }
    }
  }
}

// Tokens of a table by position; the index is the token's rank.
class ByPosition {
 public:
  explicit ByPosition(const std::vector<NaiveToken>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) order_.emplace_back(tokens[i].position, i);
    if (!std::ranges::is_sorted(order_)) std::ranges::sort(order_);
  }
  // Index of the token at `position`; -1: none.
  int rank(Position position) const {
    const auto found = std::ranges::lower_bound(order_, position, {}, &std::pair<Position, std::size_t>::first);
    return found == order_.end() || found->first != position ? -1 : static_cast<int>(found - order_.begin());
  }
  std::size_t token(int rank) const { return order_[static_cast<std::size_t>(rank)].second; }

 private:
  std::vector<std::pair<Position, std::size_t>> order_;
};

// Block: which tokens share a page.
inline void expect_same_pages(const SlotTable& table, NaiveCache& naive, int t) {
  const bool closed_up = naive.closed_up(t);
  const ByPosition index(naive.table(t));
  std::map<int, int> known;  // page of the table -> of the model
  for (int slot = 0; slot < table.slots(); ++slot) {
    const Position position = table.position()[static_cast<std::size_t>(slot)];
    if (position == kNoPosition) continue;
    ASSERT_GE(index.rank(position), 0);
    NaiveToken& token = naive.table(t)[index.token(index.rank(position))];
    const int page = slot / table.evicted_page();
    if (!known.contains(page)) known[page] = closed_up ? naive.new_page() : token.page;
    if (closed_up) token.page = known[page];
    ASSERT_EQ(known[page], token.page) << "position " << token.position;
  }
  const std::map<int, int> counts = NaiveCache::pages(naive.table(t));
  ASSERT_EQ(known.size(), counts.size());
  ASSERT_LE(std::ranges::count_if(counts, [&](const auto& c) { return c.second < table.evicted_page(); }), 1);
}

// The merged tokens, in any order, and the kernels' view of them.
inline void expect_same_merged(const Cache& cache, NaiveCache& naive, int t) {
  const SlotTable& table = cache.table(t);
  const MergedTokens& merged = *cache.merged(t);
  const auto& wanted = naive.merged(t);
  ASSERT_EQ(merged.tokens().size(), wanted.size());
  if (wanted.empty()) return;
  const MergedView view = merged.view();
  std::vector<float> max(static_cast<std::size_t>(table.slots()), 1);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const MergedToken& token = merged.tokens()[i];
    const auto same = std::ranges::find(wanted, token.position, &NaiveMerged::position);
    ASSERT_TRUE(same != wanted.end());
    ASSERT_EQ(table.position()[static_cast<std::size_t>(token.slot)], same->into);
    ASSERT_EQ(token.factor, same->factor);
    ASSERT_EQ(token.score, same->score);
    for (std::size_t c = 0; c < merged.statistics(i).size(); ++c)
      ASSERT_EQ(merged.statistics(i)[c], NaiveToken::column(same->score, static_cast<int>(c)));
    ASSERT_EQ(view.factor[token.entry], same->factor);
    const int row = token.entry / kTile, lane = view.lane[row], tile = token.slot / kTile;
    ASSERT_EQ(lane == -1 ? token.entry % kTile : lane, token.slot % kTile);
    ASSERT_TRUE(view.first[tile] <= row && row < view.first[tile + 1]);
    max[static_cast<std::size_t>(token.slot)] = std::max(max[static_cast<std::size_t>(token.slot)], token.factor);
  }
  for (int slot = 0; slot < table.slots(); ++slot) ASSERT_EQ(view.max[slot], max[static_cast<std::size_t>(slot)]);
  ASSERT_EQ(view.first[table.slots() / kTile], view.rows);
}

inline void expect_same_table(const Cache& cache, NaiveCache& naive, int t) {
  const CacheOptions& o = cache.options();
  const SlotTable& table = cache.table(t);
  const auto& tokens = naive.table(t);
  const ByPosition index(tokens);
  const SlotsView slots = table.view();
  ASSERT_EQ(table.next(), naive.next());
  ASSERT_EQ(table.tokens_read(), naive.tokens_read());
  ASSERT_EQ(table.occupied(), static_cast<int>(tokens.size()));
  ASSERT_EQ(slots.occupied, table.occupied());
  ASSERT_EQ(slots.slots, table.slots());
  ASSERT_EQ(slots.slots % o.page_size, 0);
  std::vector<int> in_page(static_cast<std::size_t>(table.pages()), 0);
  int seen = 0;
  for (int slot = 0; slot < slots.slots; ++slot) {
    const auto s = static_cast<std::size_t>(slot);
    const Position position = table.position()[s];
    if (position == kNoPosition) {
      ASSERT_EQ(slots.relative[slot], kEmptySlot);
      continue;
    }
    const int rank = index.rank(position);
    ASSERT_GE(rank, 0) << "position " << position << " was dropped";
    const NaiveToken& token = tokens[index.token(rank)];
    ++seen;
    ++in_page[static_cast<std::size_t>(slot / o.page_size)];
    ASSERT_EQ(table.ordinal(slot), token.ordinal);
    ASSERT_EQ(slots.relative[slot], std::max<Position>(position - table.base(), SlotTable::kSaturated));
    ASSERT_EQ(table.score()[s], token.score);
    for (int c = 0; c < table.columns(); ++c) ASSERT_EQ(table.column(c)[s], NaiveToken::column(token.score, c));
    if (o.track_rank) {
      ASSERT_EQ(slots.rank[slot], table.next() <= o.original_until ? position : rank);
    }
    if (o.mechanism == Mechanism::kShift || o.mechanism == Mechanism::kGather) {
      ASSERT_EQ(s, index.token(rank));
    }
  }
  ASSERT_EQ(seen, table.occupied());  // together with the search above: the same set, no duplicates
  for (int p = 0; p < table.pages(); ++p) ASSERT_EQ(table.occupied_in_page(p), in_page[static_cast<std::size_t>(p)]);
  if (table.pages() > 0) {
    ASSERT_TRUE(table.mapped(table.pages() - 1)) << "an unmapped page at the end";
  }
  if (cache.merged(t) != nullptr) expect_same_merged(cache, naive, t);
}

inline void expect_same_bytes(const LayerView& view, int h, int head, const SlotTable& table,
                              const std::vector<NaiveToken>& tokens) {
  const ByPosition index(tokens);
  for (int p = 0; p < table.pages(); ++p) ASSERT_EQ(view.head[h].page[p] != nullptr, table.mapped(p));
  for (int slot = 0; slot < table.slots(); ++slot) {
    const Position position = table.position()[static_cast<std::size_t>(slot)];
    if (position == kNoPosition) continue;
    bool same = true;
    for_each_element(view, h, head, slot, tokens[index.token(index.rank(position))].id,
                     [&](const std::byte* at, std::uint32_t bits, std::size_t bytes) {
                       same &= std::memcmp(at, &bits, bytes) == 0;
                     });
    ASSERT_TRUE(same) << "another token's bytes in slot " << slot << " of head " << head;
  }
}

// All public state of `cache` agrees with `naive`.
inline void expect_same(const Cache& cache, NaiveCache& naive) {
  const CacheOptions& o = cache.options();
  const auto failed = [] { return ::testing::Test::HasFatalFailure(); };
  ASSERT_EQ(cache.next(), naive.next());
  for (int t = 0; t < cache.tables() && !failed(); ++t) {
    if (o.mechanism == Mechanism::kBlock) expect_same_pages(cache.table(t), naive, t);
    if (!failed()) expect_same_table(cache, naive, t);
  }
  std::size_t bytes = 0;
  for (int layer = 0; layer < o.geometry.layers() && !failed(); ++layer)
    for (int h = 0; h < o.geometry.layer(layer).kv_heads && !failed(); ++h) {
      const int head = o.geometry.head(layer, h), t = cache.table_of(head);
      ASSERT_EQ(cache.view(layer).head[h].slots->relative, cache.table(t).view().relative);
      ASSERT_EQ(cache.view(layer).head[h].slots->slots, cache.table(t).slots());
      bytes += static_cast<std::size_t>(cache.table(t).mapped_pages()) * page_bytes(cache.view(layer));
      if (o.pages) expect_same_bytes(cache.view(layer), h, head, cache.table(t), naive.table(t));
    }
  if (failed()) return;
  ASSERT_EQ(cache.bytes_in_use(), o.pages ? bytes : 0U);
}

}  // namespace palimpsest::testing
