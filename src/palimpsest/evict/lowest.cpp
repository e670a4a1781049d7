#include "palimpsest/evict/lowest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/evict/lowest.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each lane keeps its own best; lanes are joined at the end.
int LowestScore(const float* score, const std::int32_t* when, int count, std::int32_t after, std::int32_t before) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  constexpr int kLanes = HWY_MAX_LANES_D(decltype(df));
  const auto low = hn::Set(di, after), high = hn::Set(di, before);
  auto least = hn::Set(df, 0.0f);
  auto age = hn::Set(di, INT32_MAX), slot = hn::Set(di, -1), at = hn::Iota(di, 0);
  const auto none = hn::Set(di, -1);
  const int whole = count / kLanes * kLanes;
  const auto meet = [&](auto s, auto w, auto some) HWY_ATTR {
    const auto admitted = hn::And(some, hn::And(hn::Gt(w, low), hn::Lt(w, high)));
    const auto older = hn::And(hn::Eq(s, least), hn::RebindMask(df, hn::Lt(w, age)));
    const auto first = hn::RebindMask(df, hn::Eq(slot, none));
    const auto better = hn::And(hn::RebindMask(df, admitted), hn::Or(first, hn::Or(hn::Lt(s, least), older)));
    least = hn::IfThenElse(better, s, least);
    age = hn::IfThenElse(hn::RebindMask(di, better), w, age);
    slot = hn::IfThenElse(hn::RebindMask(di, better), at, slot);
    at = hn::Add(at, hn::Set(di, kLanes));
  };
  const auto all = hn::FirstN(di, static_cast<std::size_t>(kLanes));
  for (int i = 0; i < whole; i += kLanes) meet(hn::LoadU(df, score + i), hn::LoadU(di, when + i), all);
  if (const auto rest = static_cast<std::size_t>(count - whole); rest > 0)
    meet(hn::LoadN(df, score + whole, rest), hn::LoadN(di, when + whole, rest), hn::FirstN(di, rest));

  HWY_ALIGN float scores[kLanes];
  HWY_ALIGN std::int32_t ages[kLanes], slots[kLanes];
  hn::Store(least, df, scores);
  hn::Store(age, di, ages);
  hn::Store(slot, di, slots);
  int best = -1;
  for (int i = 0; i < kLanes; ++i) {
    if (slots[i] < 0) continue;
    if (best < 0 || scores[i] < scores[best] || (scores[i] == scores[best] && ages[i] < ages[best])) best = i;
  }
  return best < 0 ? -1 : slots[best];
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
