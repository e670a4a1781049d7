// Blocks of a head whose slots the step's drafts change (SlotsView::patches): each query sees tiles of its own.
//
//   query   0      page           page
//           1      page           shadow 1: the page's tile, with token 1 in its victim's lane
//           2      shadow 2       shadow 1
//
// Other blocks are read once for all queries (attend-inl.h). A query's lanes, and so its sums, are those of a step of
// its own.

#if defined(PALIMPSEST_ATTENTION_PATCHED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_PATCHED_INL_H_
#undef PALIMPSEST_ATTENTION_PATCHED_INL_H_
#else
#define PALIMPSEST_ATTENTION_PATCHED_INL_H_
#endif

#include <algorithm>
#include <bit>

#include "palimpsest/attention/attend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

inline bool in_block(const SlotPatch& patch, int index) {
  return patch.slot / kBlock == index;
}

// The first of the unit's queries that sees a patched slot in block `index`; all later ones do. u.queries: none.
HWY_INLINE int first_patched_query(const Unit& u, int index) {
  for (const SlotPatch& patch : u.work.patches)
    if (in_block(patch, index)) return std::max(0, patch.query - u.first_query);
  return u.queries;
}

struct PatchedBlock {
  Block block;
  std::int32_t relative[kBlock], rank[kBlock];
};

// Block `index` as query `query` of the step sees it; `visible`: the slots that it sees.
HWY_INLINE void find_patched(const Unit& u, int index, const Tiles& tiles, int query, PatchedBlock& out,
                             std::uint64_t& visible) {
  const SlotsView& slots = u.work.slots();
  const SequenceTokens& tokens = *u.work.tokens;
  const int first = index * kBlock;
  Block b{};
  b.tiles = std::min(4, (slots.slots - first) / kTile);
  b.relative = out.relative;
  std::copy_n(slots.relative + first, b.tiles * kTile, out.relative);
  if (slots.rank != nullptr) std::copy_n(slots.rank + first, b.tiles * kTile, out.rank), b.rank = out.rank;
  b.bias = slots.bias == nullptr ? nullptr : slots.bias + first;
  Tiles own = tiles;
  for (const SlotPatch& patch : u.work.patches) {
    if (patch.query > query) break;
    if (!in_block(patch, index)) continue;
    const int slot = patch.slot % kBlock;
    out.relative[slot] = patch.token ? tokens.relative[patch.query] : kEmptySlot;
    if (!patch.token) continue;
    out.rank[slot] = query_rank(tokens, slots, patch.query);
    own.key[slot / kTile] = u.work.shadow_key(patch.query);
    own.value[slot / kTile] = u.work.shadow_value(patch.query);
  }
  visible = b.used = visible_bits(out.relative, b.tiles, u.work, query);
  if (b.used != 0 && tokens.two_query) b.sinks = before_bits(out.relative, b.tiles, tokens.sink_end);
  const int any_used = b.used == 0 ? 0 : std::countr_zero(b.used) / kTile;
  for (int t = 0; t < 4; ++t) {
    const int from = b.used_in(t) != 0 ? t : any_used;
    b.key[t] = own.key[from];
    b.value[t] = own.value[from];
  }
  out.block = b;
}

// The scores of the unit's query `q` alone. Queries are interleaved by four rows, so up to three rows before its own
// are computed, too.
HWY_INLINE void score_query(const Unit& u, const Block& b, int q) {
  const int group = u.work.group(), dim = u.shape().head_dim, row = q * group, first = row / 4 * 4;
  Unit one{u.work, u.memory, u.first_query + q, 1, row - first + group};
  UnitMemory& m = one.memory;
  m.query += first * dim, m.sink_query += first * dim;
  m.query_codes += first * dim, m.sink_query_codes += first * dim;
  m.query_steps += first * (dim / 32), m.sink_query_steps += first * (dim / 32);
  m.score = m.patched_score;
  dot_block(one, b, u.widens(), Prefetch());
  m.score += static_cast<std::ptrdiff_t>(row - first) * kBlock;
  one.row_count = group;
  bias_block(one, b);
  std::copy_n(m.score, group * kBlock, u.memory.score + static_cast<std::ptrdiff_t>(row) * kBlock);
}

// Adds a block's values to the rows of some queries.
HWY_INLINE void add_queries(const Unit& u, const Block& b, int first, int count) {
  const int row = first * u.work.group();
  Unit sub_unit{u.work, u.memory, u.first_query + first, count};
  sub_unit.memory.score += static_cast<std::ptrdiff_t>(row) * kBlock;
  sub_unit.memory.value += static_cast<std::ptrdiff_t>(row) * u.value_stride();
  sub_unit.memory.correction += row;
  add_block(sub_unit, b, u.widens(), Prefetch());
}

// One block, in which queries from `first` on see patched slots. `b`, `visible`: of the pages.
HWY_NOINLINE void attend_patched(const Unit& u, int index, const Tiles& tiles, Block b, int first,
                                 std::uint64_t* visible) {
  PatchedBlock of[kDraftRows];
  b.used = 0;
  for (int q = 0; q < first; ++q) b.used |= visible[q];
  if (b.used != 0) score_block(Unit{u.work, u.memory, u.first_query, first}, b, u.widens(), Prefetch());
  for (int q = first; q < u.queries; ++q) {
    find_patched(u, index, tiles, u.first_query + q, of[q], visible[q]);
    if (visible[q] != 0) score_query(u, of[q].block, q);
  }
  online_softmax(u, visible);
  if (b.used != 0) add_queries(u, b, 0, first);
  for (int q = first; q < u.queries; ++q)
    if (visible[q] != 0) add_queries(u, of[q].block, q, 1);
}

// kPatched: the head has SlotsView::patches (patched-inl.h).
template <bool kPatched>
HWY_NOINLINE void attend(const HeadStep& w, int query_block, int split, const UnitMemory& memory) {
  const int first_query = w.first_query + query_block * w.block_queries;
  Unit u{w, memory, first_query, std::min(w.block_queries, w.first_query + w.queries - first_query)};
  const int rows = u.rows(), per_split = w.splits > 1 ? kSplit / kBlock : w.blocks();
  const int first_kept = (w.tokens->count - w.kept_queries) * w.group();  // rows from this one on keep their weights
  const bool widen = u.widens(), keep_all = w.keeps_all();
  assert(!kPatched || keep_all || w.kept_queries == 0);
  prepare_queries(u);
  std::fill_n(memory.value, rows * u.value_stride(), 0.0f);
  std::fill_n(memory.sum, rows * kTile, 0.0f);
  std::fill_n(memory.max, rows, kNothing);

  std::uint64_t visible[kRows];
  const int first = split * per_split, last = std::min(w.blocks(), first + per_split);
  Tiles tiles(w, first);
  for (int n = first; n < last; ++n) {
    const Tiles next(w, n + 1);
    const Block b = find_block(u, n, tiles, visible);
    if (keep_all) u.memory.score = w.kept + static_cast<std::size_t>(n) * rows * kBlock;  // written in place
    if constexpr (kPatched) {
      if (const int first_patched = first_patched_query(u, n); first_patched < u.queries) {
        attend_patched(u, n, tiles, b, first_patched, visible);
        tiles = next;
        if (w.kept_queries > 0)
          for (int r = 0; r < rows; ++r) w.kept_max[r * w.blocks() + n] = memory.max[r];
        continue;
      }
    }
    if (b.used != 0) {
      score_block(u, b, widen, prefetch_of(tiles.value, value_tile_bytes(*w.cache)));
      online_softmax(u, visible);
      Prefetch keys = prefetch_of(next.key, key_tile_bytes(*w.cache));
      keys.also = static_cast<std::size_t>(u.half());
      add_block(u, b, widen, keys);
    }
    tiles = next;
    if (w.kept_queries > 0) {
      const int kept_rows = rows - first_kept;
      float* const to = w.kept + static_cast<std::size_t>(n) * kept_rows * kBlock;
      for (int r = 0; r < kept_rows; ++r) w.kept_max[r * w.blocks() + n] = memory.max[first_kept + r];
      if (b.used == 0) {
        std::fill_n(to, kept_rows * kBlock, 0.0f);
      } else if (!keep_all) {
        std::copy_n(memory.score + first_kept * kBlock, kept_rows * kBlock, to);
      }
    }
  }
  finish_rows(u, split);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
