#include "palimpsest/evict/lowest.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "palimpsest/core/score_order.h"
#include "palimpsest/core/vector_targets.h"  // must come before Highway's headers

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/evict/lowest.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kMaxLanes = 16;
using F = hn::CappedTag<float, kMaxLanes>;
using I = hn::RebindToSigned<F>;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Lowest {
  float score = kInfinity;
  std::int32_t relative = INT32_MAX;  // relative position; above that of every admitted slot
  int slot = -1;
};

inline constexpr int kTileSlots = 256;  // slots per call of update_lowest()

// Updates `lowest` from `count` slots, a multiple of the vector's lanes; the first is slot `first`. Two passes: the
// minimum score, then the slot that has it. The second runs only if the minimum is not above `lowest`, which is rare.
HWY_INLINE void update_lowest(const float* score, const std::int32_t* relative, int count, int first,
                              std::int32_t after, std::int32_t before, Lowest& lowest) {
  const F df;
  const I di;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const auto low = hn::Set(di, after), high = hn::Set(di, before);
  const auto infinite = hn::Set(df, kInfinity), lowest_number = hn::Set(df, -kInfinity);
  const auto admitted = [&](int i) HWY_ATTR {
    const auto w = hn::LoadU(di, relative + i);
    return hn::RebindMask(df, hn::And(hn::Gt(w, low), hn::Lt(w, high)));
  };
  // The vector minimum of NaN and a number differs between machines, so NaN counts as -infinity in it; score_below()
  // tells the two apart below.
  const auto number = [&](int i) HWY_ATTR {
    const auto s = hn::LoadU(df, score + i);
    return hn::IfThenElse(hn::Eq(s, s), s, lowest_number);
  };
  const auto candidate = [&](int i) HWY_ATTR { return hn::IfThenElse(admitted(i), number(i), infinite); };
  auto min = infinite, other = infinite;
  int n = 0;
  for (; n + 2 * lanes <= count; n += 2 * lanes) {
    min = hn::Min(min, candidate(n));
    other = hn::Min(other, candidate(n + lanes));
  }
  if (n < count) min = hn::Min(min, candidate(n));
  const auto tile_min = hn::MinOfLanes(df, hn::Min(min, other));
  if (hn::GetLane(tile_min) > lowest.score) return;  // false if lowest.score is NaN: score_below() decides
  for (n = 0; n < count; n += lanes) {
    const auto found = hn::And(admitted(n), hn::Eq(number(n), tile_min));
    if (hn::AllFalse(df, found)) continue;
    for (std::uint64_t bits = hn::BitsFromMask(df, found); bits != 0; bits &= bits - 1) {
      const int i = n + std::countr_zero(bits);
      if (score_below(lowest.score, score[i])) continue;
      if (score_below(score[i], lowest.score) || relative[i] < lowest.relative)
        lowest = {score[i], relative[i], first + i};
    }
  }
}

int LowestScore(const float* score, const std::int32_t* relative, int count, std::int32_t after, std::int32_t before) {
  const int lanes = static_cast<int>(hn::Lanes(F()));  // a power of two, at most kMaxLanes
  Lowest lowest;
  const int full = count / lanes * lanes;
  for (int i = 0; i < full; i += kTileSlots)
    update_lowest(score + i, relative + i, std::min(kTileSlots, full - i), i, after, before, lowest);
  if (full == count) return lowest.slot;
  float scores[kMaxLanes] = {};
  std::int32_t relatives[kMaxLanes];
  std::fill_n(relatives, kMaxLanes, INT32_MAX);
  std::copy(score + full, score + count, scores);
  std::copy(relative + full, relative + count, relatives);
  update_lowest(scores, relatives, lanes, full, after, before, lowest);
  return lowest.slot;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(LowestScore);

int lowest_score(std::span<const float> score, const std::int32_t* relative, std::int32_t after, std::int32_t before) {
  return HWY_DYNAMIC_DISPATCH(LowestScore)(score.data(), relative, static_cast<int>(score.size()), after, before);
}

}  // namespace palimpsest
#endif
