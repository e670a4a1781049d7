// Compiles the kernels once per instruction set; the best that this machine has is chosen at run time.
//
// Three sets on x86-64: SSE2 (what every machine has), AVX2 and AVX-512. The ones between bring nothing here. On Arm:
// NEON; vectors of unknown length are left out.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/attention/attend-inl.h"
#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/finish-inl.h"
#include "palimpsest/attention/insert-inl.h"
#include "palimpsest/attention/work.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Calls with the element type of the head's cache.
template <class Body>
HWY_INLINE void with_type(const HeadWork& w, const Body& body) {
  switch (w.cache->type) {
    case CacheType::kF32:
      return body(float());
    case CacheType::kF16:
      return body(hwy::float16_t());
    case CacheType::kBF16:
      return body(hwy::bfloat16_t());
    case CacheType::kQ8_0:
      return body(std::int8_t());
  }
}

template <class T>
HWY_INLINE void put_tokens(const HeadWork& w, int first, int last, int slot_begin, int slot_end,
                           const UnitMemory& memory) {
  if constexpr (kIsScaled<T>)
    insert_scaled(w, first, last, slot_begin, slot_end, memory);
  else
    insert<T>(w, first, last, slot_begin, slot_end, memory);
}

void InsertTokens(const HeadWork& w, int unit, const UnitMemory& memory) {
  with_type(w, [&](auto type) HWY_ATTR {
    const int first = unit * kInsertTokens, last = std::min(w.tokens->count, first + kInsertTokens);
    put_tokens<decltype(type)>(w, first, last, 0, w.slots().slots, memory);
  });
}

void RotateKeys(const HeadWork& w, int unit, const UnitMemory& memory) {
  with_type(w, [&](auto type) HWY_ATTR {
    if (w.insert_units == 0)
      put_tokens<decltype(type)>(w, 0, w.tokens->count, unit * kSplit, (unit + 1) * kSplit, memory);
    if constexpr (!kIsScaled<decltype(type)>) rotate<decltype(type)>(w, unit, memory);
  });
}

void RankTiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  for (int slot = 0; slot < slots.slots; slot += kTile)
    make_turns(rank_row, shape.rope_dims, slots.rank + slot,
               tiles + static_cast<std::ptrdiff_t>(slot) * shape.rope_dims);
}

void AttendUnit(const HeadWork& w, int query_block, int split, const UnitMemory& memory) {
  with_type(w, [&](auto type) HWY_ATTR {
    const int begin = w.splits > 1 ? split * kSplit : 0, end = w.splits > 1 ? begin + kSplit : w.slots().slots;
    if (w.insert_units == 0 && w.rotate_units == 0)
      put_tokens<decltype(type)>(w, 0, w.tokens->count, begin, end, memory);
    attend<decltype(type)>(w, query_block, split, memory);
  });
}

void JoinHead(const HeadWork& w) {
  join(w);
}

void WeightsUnit(const HeadWork& w, int unit, const UnitMemory& memory) {
  with_type(w, [&](auto type) HWY_ATTR { column_sums<decltype(type)>(w, unit, memory); });
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(InsertTokens);
HWY_EXPORT(RotateKeys);
HWY_EXPORT(RankTiles);
HWY_EXPORT(AttendUnit);
HWY_EXPORT(JoinHead);
HWY_EXPORT(WeightsUnit);

void insert_tokens(const HeadWork& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(InsertTokens)(work, unit, memory);
}
void rotate_keys(const HeadWork& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(RotateKeys)(work, unit, memory);
}
void make_rank_tiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  HWY_DYNAMIC_DISPATCH(RankTiles)(shape, rank_row, slots, tiles);
}
void attend_unit(const HeadWork& work, int query_block, int split, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(AttendUnit)(work, query_block, split, memory);
}
void join_head(const HeadWork& work) {
  HWY_DYNAMIC_DISPATCH(JoinHead)(work);
}
void weights_unit(const HeadWork& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(WeightsUnit)(work, unit, memory);
}

}  // namespace palimpsest
#endif
