// Pooling over neighbours: window 7, stride 1, same length.
#pragma once

#include <algorithm>
#include <limits>
#include <span>

namespace palimpsest {

// out[i] = max of in[i - 3 .. i + 3] within the row; NaN is ignored. `in` and `out` do not overlap.
inline void max_pool_7(std::span<const float> in, std::span<float> out) {
  constexpr std::size_t kReach = 3;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t first = i < kReach ? 0 : i - kReach, end = std::min(in.size(), i + kReach + 1);
    float max = -std::numeric_limits<float>::infinity();
    for (std::size_t j = first; j < end; ++j) max = std::max(max, in[j]);  // `max` if in[j] is NaN
    out[i] = max;
  }
}

// out[i] = mean of in[i - 3 .. i + 3] within the row.
inline void mean_pool_7(std::span<const float> in, std::span<float> out) {
  constexpr std::size_t kReach = 3;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t first = i < kReach ? 0 : i - kReach, end = std::min(in.size(), i + kReach + 1);
    float sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += in[j];
    out[i] = sum / static_cast<float>(end - first);
  }
}

}  // namespace palimpsest
