// The kernels of units: independent of formats; they call the format's kernels for each block.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/units.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/attend-inl.h"
#include "palimpsest/attention/clusters-inl.h"
#include "palimpsest/attention/columns-inl.h"
#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/insert-inl.h"
#include "palimpsest/attention/patched-inl.h"
#include "palimpsest/attention/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

void InsertTokens(const HeadStep& w, int unit, const UnitMemory& memory) {
  const SlotRange range = insert_range(w, unit);
  put_tokens(w, range.begin, range.end, memory);
}

void RotateKeys(const HeadStep& w, int unit, const UnitMemory& memory) {
  if (w.insert_units == 0) put_tokens(w, unit * kSplit, (unit + 1) * kSplit, memory);
  rotate(w, unit, memory);
}

void AttendUnit(const HeadStep& w, int query_block, int split, const UnitMemory& memory) {
  const int begin = w.splits > 1 ? split * kSplit : 0, end = w.splits > 1 ? begin + kSplit : w.slots().slots;
  if (w.insert_units == 0 && w.rotate_units == 0 && w.first_query == 0) put_tokens(w, begin, end, memory);
  if (w.merged != nullptr) {
    attend_clusters(w, query_block, memory);
  } else if (w.shadow != nullptr) {
    put_drafts(w, begin, end, memory);
    attend<true>(w, query_block, split, memory);
  } else {
    attend<false>(w, query_block, split, memory);
  }
}

void ReduceHead(const HeadStep& w) {
  reduce(w);
}

void WeightsUnit(const HeadStep& w, int unit, const UnitMemory& memory) {
  column_sums(w, unit, memory);
}

void RankTiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  for (int slot = 0; slot < slots.slots; slot += kTile)
    make_rope_tile(rank_row, shape.rope_dims, slots.rank + slot,
                   tiles + static_cast<std::ptrdiff_t>(slot) * shape.rope_dims);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(InsertTokens);
HWY_EXPORT(RotateKeys);
HWY_EXPORT(AttendUnit);
HWY_EXPORT(ReduceHead);
HWY_EXPORT(WeightsUnit);
HWY_EXPORT(RankTiles);

const FormatKernels& kernels_of(CacheType type) {
  using Of = const FormatKernels& (*)();
#define PALIMPSEST_TYPE(enumerator, name) name##_kernels,
  static constexpr Of kOf[] = {PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)};
#undef PALIMPSEST_TYPE
  return kOf[static_cast<std::size_t>(type)]();
}

const KeyKernels& key_kernels_of(CacheType type) {
  return kernels_of(type).key;
}

const ValueKernels& value_kernels_of(CacheType type) {
  return kernels_of(type).value;
}

void insert_tokens(const HeadStep& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(InsertTokens)(work, unit, memory);
}
void rotate_keys(const HeadStep& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(RotateKeys)(work, unit, memory);
}
void attend_unit(const HeadStep& work, int query_block, int split, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(AttendUnit)(work, query_block, split, memory);
}
void reduce_head(const HeadStep& work) {
  HWY_DYNAMIC_DISPATCH(ReduceHead)(work);
}
void weights_unit(const HeadStep& work, int unit, const UnitMemory& memory) {
  HWY_DYNAMIC_DISPATCH(WeightsUnit)(work, unit, memory);
}
void make_rank_tiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  HWY_DYNAMIC_DISPATCH(RankTiles)(shape, rank_row, slots, tiles);
}

}  // namespace palimpsest
#endif
