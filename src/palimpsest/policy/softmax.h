// The softmax of scores that policies derive, in place. Not empty. A NaN counts as the least score when the maximum is
// searched (core/score_order.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "palimpsest/core/score_order.h"

namespace palimpsest {

inline void softmax(std::span<float> scores) {
  const float max = *std::ranges::max_element(scores, score_below<float>);
  float sum = 0;
  for (float& x : scores) sum += x = std::exp(x - max);
  for (float& x : scores) x /= sum;
}

}  // namespace palimpsest
