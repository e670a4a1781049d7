#include "palimpsest/attention/turn_keys.h"

#include <algorithm>
#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/turn_keys.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kTile>;
inline constexpr F df{};

HWY_INLINE auto get(const float* from) {
  return hn::LoadU(df, from);
}
template <class T>
HWY_INLINE auto get(const T* from) {
  return hn::PromoteTo(df, hn::LoadU(hn::Rebind<T, F>(), from));
}
template <class Vec>
HWY_INLINE void put(Vec value, float* to) {
  hn::StoreU(value, df, to);
}
template <class Vec, class T>
HWY_INLINE void put(Vec value, T* to) {
  const hn::Rebind<T, F> dt;
  hn::StoreU(hn::DemoteTo(dt, value), dt, to);
}

// Lanes begin .. end - 1 of one tile; the others are written back as they were.
template <class T>
HWY_INLINE void turn_lanes(T* HWY_RESTRICT tile, RopeKind rope, int pairs, int begin, int end, const float* cos_sin) {
  const bool halves = rope == RopeKind::kHalves;
  const int lanes = static_cast<int>(hn::Lanes(df));
  for (int n = 0; n < kTile; n += lanes) {
    if (end <= n || begin >= n + lanes) continue;
    const auto ours = hn::AndNot(hn::FirstN(df, static_cast<std::size_t>(std::max(0, begin - n))),
                                 hn::FirstN(df, static_cast<std::size_t>(std::min(lanes, end - n))));
    for (int p = 0; p < pairs; ++p) {
      T* const a = tile + (halves ? p : 2 * p) * kTile + n;
      T* const b = tile + (halves ? p + pairs : 2 * p + 1) * kTile + n;
      const auto cos = hn::Set(df, cos_sin[p]), sin = hn::Set(df, cos_sin[pairs + p]);
      const auto x = get(a), y = get(b);
      put(hn::IfThenElse(ours, hn::NegMulAdd(y, sin, hn::Mul(x, cos)), x), a);
      put(hn::IfThenElse(ours, hn::MulAdd(x, sin, hn::Mul(y, cos)), y), b);
    }
  }
}

template <class T>
HWY_INLINE void turn_slots(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first,
                           int last, const float* cos_sin) {
  for (int slot = first; slot < last;) {
    const int offset = slot % cache.page_size, lane = offset % kTile;
    const int end = std::min(kTile, lane + last - slot);
    T* const tile = reinterpret_cast<T*>(head.page[slot / cache.page_size]) + key_index(cache, offset - lane, 0);
    turn_lanes(tile, rope, rope_dims / 2, lane, end, cos_sin);
    slot += end - lane;
  }
}

void TurnKeys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
              const float* cos_sin) {
  switch (cache.type) {
    case CacheType::kF32:
      return turn_slots<float>(cache, head, rope, rope_dims, first, last, cos_sin);
    case CacheType::kF16:
      return turn_slots<hwy::float16_t>(cache, head, rope, rope_dims, first, last, cos_sin);
    case CacheType::kBF16:
      return turn_slots<hwy::bfloat16_t>(cache, head, rope, rope_dims, first, last, cos_sin);
    case CacheType::kQ8_0:
      assert(false);  // refused beforehand: each turn would round the keys once more
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(TurnKeys);

void turn_keys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
               const float* cos_sin) {
  assert(rope != RopeKind::kNone && first >= 0 && first <= last);
  HWY_DYNAMIC_DISPATCH(TurnKeys)(cache, head, rope, rope_dims, first, last, cos_sin);
}

}  // namespace palimpsest
#endif
