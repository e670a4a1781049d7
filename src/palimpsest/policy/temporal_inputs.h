// What policy `temporal` reads of a token's time and attention; its scorer is fitted to the same numbers.
//
//   ln(age)  1 / sqrt(age)  ln(sum + e)  ln(lately + e)  sqrt(sum / age)  sqrt(lately)           e = 1e-4
//
// age: 1 + tokens since. sum: attention from all queries so far. lately: the token's share of the attention of the last
// queries.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

namespace palimpsest {

inline std::array<float, 6> temporal_inputs(float age, float sum, float lately) {
  constexpr float kFloor = 1e-4F;
  sum = std::max(sum, 0.0F);
  lately = std::max(lately, 0.0F);
  return {std::log(age),        1 / std::sqrt(age), std::log(sum + kFloor), std::log(lately + kFloor),
          std::sqrt(sum / age), std::sqrt(lately)};
}

}  // namespace palimpsest
