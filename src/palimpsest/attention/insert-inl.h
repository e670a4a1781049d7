// What stands before `attend`: inserting tokens, and turning keys into a copy.

#if defined(PALIMPSEST_ATTENTION_INSERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_INSERT_INL_H_
#undef PALIMPSEST_ATTENTION_INSERT_INL_H_
#else
#define PALIMPSEST_ATTENTION_INSERT_INL_H_
#endif

#include "palimpsest/attention/element.h"
#include "palimpsest/attention/lay-inl.h"
#include "palimpsest/attention/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// out = the key's rotated half (cache/view.h); 0 where nothing turns.
HWY_INLINE void rotate_half(const AttentionShape& shape, const float* HWY_RESTRICT key, float* HWY_RESTRICT out) {
  const int pairs = shape.rope_dims / 2;
  const int step = shape.rope == RopeKind::kHalves ? 1 : 2, partner = shape.rope == RopeKind::kHalves ? pairs : 1;
  for (int p = 0; p < pairs; ++p) {
    out[p * step] = -key[p * step + partner];
    out[p * step + partner] = key[p * step];
  }
  for (int d = 2 * pairs; d < shape.head_dim; ++d) out[d] = 0;
}

// Whether all of a row are numbers of at most this magnitude.
HWY_INLINE bool fits(const float* row, int count, float largest) {
  const Vec most = hn::Set(df, largest);
  const auto over = [&](Vec x) HWY_ATTR { return hn::Not(hn::Le(hn::Abs(x), most)); };  // NaN is
  Mask any = over(load_first(row, count % kLanes));
  for (int n = count % kLanes; n < count; n += kLanes) any = hn::Or(any, over(load(row + n)));
  return hn::AllFalse(df, any);
}
HWY_INLINE void check_fits(const HeadWork& w, bool value, const float* row, int count, float largest) {
  if (w.step->misfits != nullptr && !fits(row, count, largest)) report_misfit(w, value, row, count);
}

// Writes the tokens whose slots lie in [slot_begin, slot_end): tiles that no other call writes.
template <class T>
HWY_NOINLINE void insert(const HeadWork& w, int slot_begin, int slot_end, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const StepTokens& tokens = *w.tokens;
  const LayerView& cache = *w.cache;
  const int* const fresh = w.slots().fresh;
  const bool turns = shape.rotation == Rotation::kAtWrite, lays = shape.head_dim % kTile == 0;
  T* const rows = reinterpret_cast<T*>(memory.key_tiles);
  T* const half_rows = rows + static_cast<std::ptrdiff_t>(kTile) * shape.head_dim;
  T* const scratch = half_rows + static_cast<std::ptrdiff_t>(kTile) * shape.head_dim;
  const auto half = static_cast<std::ptrdiff_t>(half_offset(cache) / sizeof(T));
  const auto key = [&](int t) { return w.step->k.at(tokens.first + t, w.kv_head); };
  const auto value = [&](int t) { return w.step->v.at(tokens.first + t, w.kv_head); };
  const float largest = largest_that_fits(cache.type);
  for (int t = 0; t < tokens.count; ++t) {
    if (fresh[t] < slot_begin || fresh[t] >= slot_end) continue;
    fetch_row(key(t), shape.head_dim);
    fetch_row(value(t), shape.value_dim);
  }
  for (int t = 0, end; t < tokens.count; t = end) {
    const int slot = fresh[t];
    for (end = t + 1; end < tokens.count && fresh[end] / kTile == slot / kTile;) ++end;  // tokens that share a tile
    if (slot < slot_begin || slot >= slot_end) continue;
    std::byte* const page = w.pages->page[slot / cache.page_size];
    const int offset = slot % cache.page_size / kTile * kTile;
    T* const tile = reinterpret_cast<T*>(page) + key_index(cache, offset, 0);
    T* const values = reinterpret_cast<T*>(page + value_offset(cache)) + value_index(cache, offset);
    const bool several = lays && end - t > 1;
    std::uint32_t lanes = 0;
    for (int i = t; i < end; ++i) {
      const int lane = fresh[i] % kTile;
      lanes |= 1u << lane;
      const float* from = key(i);
      if (turns) turn(from, shape.head_dim, shape, query_row(shape, tokens, w.slots(), i), 1, memory.row);
      const std::ptrdiff_t row = several ? static_cast<std::ptrdiff_t>(lane) * shape.head_dim : 0;
      check_fits(w, false, turns ? memory.row : from, shape.head_dim, largest);
      round_row(turns ? memory.row : from, shape.head_dim, rows + row);
      if (cache.rotated_half) {
        rotate_half(shape, from, memory.row);
        round_row(memory.row, shape.head_dim, half_rows + row);
      }
      for (int d = 0; !several && d < shape.head_dim; ++d) tile[d * kTile + lane] = rows[d];
      for (int d = 0; !several && cache.rotated_half && d < shape.head_dim; ++d)
        tile[half + d * kTile + lane] = half_rows[d];
      check_fits(w, true, value(i), shape.value_dim, largest);
      round_row(value(i), shape.value_dim, values + static_cast<std::ptrdiff_t>(lane) * shape.value_dim);
    }
    if (several) lay_keys(rows, lanes, shape.head_dim, tile, scratch);
    if (several && cache.rotated_half) lay_keys(half_rows, lanes, shape.head_dim, tile + half, scratch);
  }
}

// The same for q8_0, a token at a time.
HWY_NOINLINE inline void insert_scaled(const HeadWork& w, int slot_begin, int slot_end, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const StepTokens& tokens = *w.tokens;
  const LayerView& cache = *w.cache;
  const float largest = largest_that_fits(cache.type);
  for (int t = 0; t < tokens.count; ++t) {
    const int slot = w.slots().fresh[t], offset = slot % cache.page_size;
    if (slot < slot_begin || slot >= slot_end) continue;
    std::byte* const page = w.pages->page[slot / cache.page_size];
    const float* const row = shape.rotation == Rotation::kAtWrite ? query_row(shape, tokens, w.slots(), t) : nullptr;
    turn(w.step->k.at(tokens.first + t, w.kv_head), shape.head_dim, shape, row, 1, memory.row);
    const float* const value = w.step->v.at(tokens.first + t, w.kv_head);
    check_fits(w, false, memory.row, shape.head_dim, largest);
    check_fits(w, true, value, shape.value_dim, largest);
    store_key(cache, page, offset, memory.row);
    store_value(cache, page, offset, value);
  }
}

// Turns a stretch of a head's keys into the copy.
template <class T>
HWY_NOINLINE void rotate(const HeadWork& w, int unit, const UnitMemory& memory) {
  const AttentionShape& shape = w.step->shape;
  const LayerView& cache = *w.cache;
  const int turn_floats = shape.rope_dims * kTile, end = std::min((unit + 1) * kSplit, w.slots().slots);
  for (int slot = unit * kSplit; slot < end; slot += kTile) {
    const std::byte* const page = w.pages->page[slot / cache.page_size];
    if (page == nullptr) continue;
    const float* turns = memory.turns;
    if (w.rank_tiles != nullptr)
      turns = w.rank_tiles + static_cast<std::ptrdiff_t>(slot / kTile) * turn_floats;
    else
      make_turns(w.tokens->rank_row, shape.rope_dims, w.slots().rank + slot, memory.turns);
    turn_tile(shape, reinterpret_cast<const T*>(page) + key_index(cache, slot % cache.page_size, 0), 0, turns,
              memory.key_tiles);
    round_row(memory.key_tiles, shape.head_dim * kTile,
              reinterpret_cast<T*>(w.turned) + static_cast<std::ptrdiff_t>(slot) * shape.head_dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
