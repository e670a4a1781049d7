#include "palimpsest/evict/lowest.h"

#include <algorithm>
#include <bit>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/evict/lowest.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Lowest {
  float score = std::numeric_limits<float>::infinity();
  std::int32_t when = INT32_MAX;
  int slot = -1;
};

inline constexpr int kStretch = 256;  // slots that are searched for their least score, then for where it is

// Looks for something lower among `count` slots, a multiple of the vector's lanes; the first is slot `first`. Few
// stretches hold something lower than all before them: only those are looked at twice.
HWY_INLINE void look(const float* score, const std::int32_t* when, int count, int first, std::int32_t after,
                     std::int32_t before, Lowest& lowest) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  constexpr int kLanes = HWY_MAX_LANES_D(decltype(df));
  const auto low = hn::Set(di, after), high = hn::Set(di, before);
  const auto infinite = hn::Set(df, std::numeric_limits<float>::infinity());
  const auto admitted = [&](int i) HWY_ATTR {
    const auto w = hn::LoadU(di, when + i);
    return hn::RebindMask(df, hn::And(hn::Gt(w, low), hn::Lt(w, high)));
  };
  auto least = infinite, other = infinite;
  int n = 0;
  for (; n + 2 * kLanes <= count; n += 2 * kLanes) {
    least = hn::Min(least, hn::IfThenElse(admitted(n), hn::LoadU(df, score + n), infinite));
    other = hn::Min(other, hn::IfThenElse(admitted(n + kLanes), hn::LoadU(df, score + n + kLanes), infinite));
  }
  if (n < count) least = hn::Min(least, hn::IfThenElse(admitted(n), hn::LoadU(df, score + n), infinite));
  const auto here = hn::MinOfLanes(df, hn::Min(least, other));
  if (hn::GetLane(here) > lowest.score) return;
  for (n = 0; n < count; n += kLanes) {
    const auto found = hn::And(admitted(n), hn::Eq(hn::LoadU(df, score + n), here));
    if (hn::AllFalse(df, found)) continue;
    for (std::uint64_t bits = hn::BitsFromMask(df, found); bits != 0; bits &= bits - 1) {
      const int i = n + std::countr_zero(bits);
      if (score[i] < lowest.score || when[i] < lowest.when) lowest = {score[i], when[i], first + i};
    }
  }
}

int LowestScore(const float* score, const std::int32_t* when, int count, std::int32_t after, std::int32_t before) {
  using F = hn::CappedTag<float, 16>;
  constexpr int kLanes = HWY_MAX_LANES_D(F);
  Lowest lowest;
  const int whole = count / kLanes * kLanes;
  for (int i = 0; i < whole; i += kStretch)
    look(score + i, when + i, std::min(kStretch, whole - i), i, after, before, lowest);
  if (whole == count) return lowest.slot;
  float scores[kLanes] = {};
  std::int32_t whens[kLanes];
  std::fill_n(whens, kLanes, INT32_MAX);
  std::copy(score + whole, score + count, scores);
  std::copy(when + whole, when + count, whens);
  look(scores, whens, kLanes, whole, after, before, lowest);
  return lowest.slot;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(LowestScore);

int lowest_score(std::span<const float> score, const std::int32_t* when, std::int32_t after, std::int32_t before) {
  return HWY_DYNAMIC_DISPATCH(LowestScore)(score.data(), when, static_cast<int>(score.size()), after, before);
}

}  // namespace palimpsest
#endif
