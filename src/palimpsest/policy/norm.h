// Norms and dot products of rows, in eight sums that the compiler vectorizes.
#pragma once

#include <cmath>
#include <span>

namespace palimpsest {

inline float dot(std::span<const float> a, std::span<const float> b) {
  float sum[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= a.size(); i += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  for (; i < a.size(); ++i) sum[i % 8] += a[i] * b[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

inline float norm(std::span<const float> row) {
  return std::sqrt(dot(row, row));
}

}  // namespace palimpsest
