// The one order of scores, a total one: NaN is below all numbers, and is evicted before them; -0 equals 0.
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
