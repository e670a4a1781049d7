// The total order of scores: NaN is below all numbers, so it is evicted first; -0 equals 0.
#pragma once

#include <cmath>

namespace palimpsest {

template <typename Float>
inline bool score_below(Float a, Float b) {
  return a < b || (std::isnan(a) && !std::isnan(b));
}
template <typename Float>
inline bool score_above(Float a, Float b) {
  return score_below(b, a);
}

}  // namespace palimpsest
