// Pooling of a row of scores over neighbours: window 7, stride 1, as long as it was.
#pragma once

#include <algorithm>
#include <span>

namespace palimpsest {

// out[i] = max of in[i - 3 .. i + 3], as far as they exist. `in` and `out` do not overlap.
inline void max_pool_7(std::span<const float> in, std::span<float> out) {
  constexpr std::size_t kReach = 3;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t first = i < kReach ? 0 : i - kReach, end = std::min(in.size(), i + kReach + 1);
    out[i] = *std::max_element(in.begin() + static_cast<std::ptrdiff_t>(first),
                               in.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

// out[i] = mean of in[i - 3 .. i + 3], of those that exist.
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
