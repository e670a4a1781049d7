// The units before `attend`: inserting tokens, and rotating keys into a copy.

#if defined(PALIMPSEST_ATTENTION_INSERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_INSERT_INL_H_
#undef PALIMPSEST_ATTENTION_INSERT_INL_H_
#else
#define PALIMPSEST_ATTENTION_INSERT_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "palimpsest/attention/kernels.h"
#include "palimpsest/attention/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// out = the key's rotated half (cache/view.h); 0 in dimensions that do not rotate.
HWY_INLINE void rotate_half(const AttentionShape& shape, const float* HWY_RESTRICT key, float* HWY_RESTRICT out) {
  const int pairs = shape.rope_dims / 2;
  const int step = shape.rope == RopeKind::kHalves ? 1 : 2, partner = shape.rope == RopeKind::kHalves ? pairs : 1;
  for (int p = 0; p < pairs; ++p) {
    out[p * step] = -key[p * step + partner];
    out[p * step + partner] = key[p * step];
  }
  for (int d = 2 * pairs; d < shape.head_dim; ++d) out[d] = 0;
}

// Whether all numbers of a row have at most this magnitude (NaN does not).
HWY_INLINE bool fits(const float* row, int count, float largest) {
  const Vec max = hn::Set(df, largest);
  const auto over = [&](Vec x) HWY_ATTR { return hn::Not(hn::Le(hn::Abs(x), max)); };  // true for NaN
  Mask any = over(load_first(row, count % kLanes));
  for (int n = count % kLanes; n < count; n += kLanes) any = hn::Or(any, over(load(row + n)));
  return hn::AllFalse(df, any);
}
// Whether it is to be stored; if not, it is reported.
HWY_INLINE bool check_fits(const HeadStep& w, int token, bool value, const float* row, int count, float largest) {
  if (w.step->misfits == nullptr || fits(row, count, largest)) return true;
  report_misfit(w, token, value, row, count);
  return false;
}

// Writes the tokens with slots in [slot_begin, slot_end): tiles that no other call writes.
HWY_NOINLINE void put_tokens(const HeadStep& w, int slot_begin, int slot_end, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const SequenceTokens& tokens = *w.tokens;
  const LayerView& cache = *w.cache;
  const int* const inserted = w.slots().inserted;
  const bool rotates = tokens.rotation == Rotation::kOnWrite;
  float* const rows = memory.key_tiles;  // [16][head_dim], then the rotated halves, then scratch for store()
  float* const half_rows = rows + static_cast<std::ptrdiff_t>(kTile) * shape.head_dim;
  float* const scratch = half_rows + static_cast<std::ptrdiff_t>(kTile) * shape.head_dim;
  const float largest_key = kv_format(cache.key_type).largest, largest_value = kv_format(cache.value_type).largest;
  const auto key = [&](int t) { return w.step->k.at(tokens.first + t, w.kv_head); };
  const auto value = [&](int t) { return w.step->v.at(tokens.first + t, w.kv_head); };
  const int count = tokens.draft_rows != nullptr ? 1 : tokens.count;  // drafts without slots: put_drafts
  for (int t = 0; t < count; ++t) {
    if (inserted[t] < slot_begin || inserted[t] >= slot_end) continue;
    fetch_row(key(t), shape.head_dim);
    fetch_row(value(t), shape.value_dim);
  }
  for (int t = 0, end; t < count; t = end) {
    const int slot = inserted[t];
    for (end = t + 1; end < count && inserted[end] / kTile == slot / kTile;) ++end;  // tokens that share a tile
    if (slot < slot_begin || slot >= slot_end) continue;
    std::byte* const page = w.pages->page[slot / cache.page_size];
    const int offset = slot % cache.page_size;
    std::byte* const tile = page + key_tile(cache, offset);
    std::uint32_t lanes = 0;
    for (int i = t; i < end; ++i) {
      const int lane = inserted[i] % kTile;
      lanes |= 1u << lane;
      float* const row = rows + static_cast<std::ptrdiff_t>(lane) * shape.head_dim;
      rotate(key(i), shape.head_dim, shape, rotates ? query_row(shape, tokens, w.slots(), i) : nullptr, 1, row);
      if (!check_fits(w, i, false, row, shape.head_dim, largest_key)) std::fill_n(row, shape.head_dim, 0.0f);
      if (cache.rotated_half) rotate_half(shape, row, half_rows + static_cast<std::ptrdiff_t>(lane) * shape.head_dim);
      const float* stored = value(i);
      if (!check_fits(w, i, true, stored, shape.value_dim, largest_value)) {
        std::fill_n(memory.row, shape.value_dim, 0.0f);
        stored = memory.row;
      }
      w.values->store(page + value_tile(cache, offset), shape.value_dim, lane, stored);
    }
    w.keys->store(tile, shape.head_dim, lanes, rows, scratch);
    if (cache.rotated_half) w.keys->store(tile + half_offset(cache), shape.head_dim, lanes, half_rows, scratch);
  }
}

// Makes the shadow tiles of the queries' drafts with patches in [slot_begin, slot_end): copies of tiles, each with one
// token more.
HWY_NOINLINE void put_drafts(const HeadStep& w, int slot_begin, int slot_end, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const SequenceTokens& tokens = *w.tokens;
  const LayerView& cache = *w.cache;
  const SlotsView& slots = w.slots();
  float* const rows = memory.key_tiles;  // [16][head_dim], then scratch for store()
  float* const scratch = rows + static_cast<std::ptrdiff_t>(kTile) * shape.head_dim;
  const float largest_key = kv_format(cache.key_type).largest, largest_value = kv_format(cache.value_type).largest;
  for (std::size_t n = 0; n < w.patches.size(); ++n) {
    const SlotPatch& patch = w.patches[n];
    if (patch.query < w.first_query) continue;  // made before
    if (!patch.token || patch.slot < slot_begin || patch.slot >= slot_end) continue;
    const int lane = patch.slot % kTile, offset = patch.slot % cache.page_size, token = patch.query;
    const std::byte* const page = w.pages->page[patch.slot / cache.page_size];
    const std::byte *key_from = page + key_tile(cache, offset), *value_from = page + value_tile(cache, offset);
    for (const SlotPatch& other : w.patches.first(n))
      if (other.token && other.slot / kTile == patch.slot / kTile)
        key_from = w.shadow_key(other.query), value_from = w.shadow_value(other.query);
    std::byte *const key = w.shadow_key(token), *const value = w.shadow_value(token);
    std::memcpy(key, key_from, key_tile_bytes(cache));
    std::memcpy(value, value_from, value_tile_bytes(cache));

    float* const row = rows + static_cast<std::ptrdiff_t>(lane) * shape.head_dim;
    const float* const at = tokens.rotation == Rotation::kOnWrite ? query_row(shape, tokens, slots, token) : nullptr;
    rotate(w.step->k.at(tokens.first + token, w.kv_head), shape.head_dim, shape, at, 1, row);
    if (!check_fits(w, token, false, row, shape.head_dim, largest_key)) std::fill_n(row, shape.head_dim, 0.0f);
    float* const kept = tokens.draft_rows[w.step->first_head + w.kv_head] +
                        static_cast<std::ptrdiff_t>(token - 1) * (shape.head_dim + shape.value_dim);
    std::copy_n(row, shape.head_dim, kept);
    float* const stored = kept + shape.head_dim;
    std::copy_n(w.step->v.at(tokens.first + token, w.kv_head), shape.value_dim, stored);
    if (!check_fits(w, token, true, stored, shape.value_dim, largest_value)) std::fill_n(stored, shape.value_dim, 0.0f);
    w.keys->store(key, shape.head_dim, 1u << lane, rows, scratch);
    w.values->store(value, shape.value_dim, lane, stored);
  }
}

// Rotates the keys of one split into the copy.
HWY_NOINLINE void rotate(const HeadStep& w, int unit, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const LayerView& cache = *w.cache;
  const int rope_tile_floats = shape.rope_dims * kTile, end = std::min((unit + 1) * kSplit, w.slots().slots);
  for (int slot = unit * kSplit; slot < end; slot += kTile) {
    const std::byte* const page = w.pages->page[slot / cache.page_size];
    if (page == nullptr) continue;
    const float* rope_tiles = memory.rope_tiles;
    if (w.rank_tiles != nullptr)
      rope_tiles = w.rank_tiles + static_cast<std::ptrdiff_t>(slot / kTile) * rope_tile_floats;
    else
      make_rope_tile(w.tokens->rank_row, shape.rope_dims, w.slots().rank + slot, memory.rope_tiles);
    w.keys->rotate(shape, page + key_tile(cache, slot % cache.page_size), 0, rope_tiles, memory.key_tiles);
    w.keys->narrow(memory.key_tiles, shape.head_dim,
                   reinterpret_cast<std::byte*>(w.rotated_keys) + slot / kTile * key_tile_bytes(cache));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
