// Chooses the kernels of a head's cache type, and compiles those that know no type.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/join-inl.h"
#include "palimpsest/attention/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

void RankTiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  for (int slot = 0; slot < slots.slots; slot += kTile)
    make_turns(rank_row, shape.rope_dims, slots.rank + slot,
               tiles + static_cast<std::ptrdiff_t>(slot) * shape.rope_dims);
}

void JoinHead(const HeadWork& w) {
  join(w);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(RankTiles);
HWY_EXPORT(JoinHead);

namespace {

const Kernels& kernels_of(const HeadWork& work) {
  switch (work.cache->type) {
    case CacheType::kF32:
      return f32_kernels();
    case CacheType::kF16:
      return f16_kernels();
    case CacheType::kBF16:
      return bf16_kernels();
    case CacheType::kQ8_0:
      break;
  }
  return q8_0_kernels();
}

}  // namespace

void insert_tokens(const HeadWork& work, int unit, const UnitMemory& memory) {
  kernels_of(work).insert_tokens(work, unit, memory);
}
void rotate_keys(const HeadWork& work, int unit, const UnitMemory& memory) {
  kernels_of(work).rotate_keys(work, unit, memory);
}
void make_rank_tiles(const AttentionShape& shape, const float* rank_row, const SlotsView& slots, float* tiles) {
  HWY_DYNAMIC_DISPATCH(RankTiles)(shape, rank_row, slots, tiles);
}
void attend_unit(const HeadWork& work, int query_block, int split, const UnitMemory& memory) {
  kernels_of(work).attend_unit(work, query_block, split, memory);
}
void join_head(const HeadWork& work) {
  HWY_DYNAMIC_DISPATCH(JoinHead)(work);
}
void weights_unit(const HeadWork& work, int unit, const UnitMemory& memory) {
  kernels_of(work).weights_unit(work, unit, memory);
}

}  // namespace palimpsest
#endif
