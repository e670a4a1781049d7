// Pooling over neighbours: window 7, stride 1, same length.
#pragma once

#include <algorithm>
#include <limits>
#include <span>

namespace palimpsest {

inline constexpr std::size_t kPoolReach = 3;

// Calls edge(i, first, end) for the numbers with fewer than 7 neighbours, and inner(i) for the others.
template <class Edge, class Inner>
void pool_7(std::size_t count, const Edge& edge, const Inner& inner) {
  const std::size_t begin = std::min(count, kPoolReach), end = std::max(begin, count - begin);
  for (std::size_t i = 0; i < begin; ++i) edge(i, 0, std::min(count, i + kPoolReach + 1));
  for (std::size_t i = begin; i < end; ++i) inner(i);
  for (std::size_t i = end; i < count; ++i) edge(i, i - kPoolReach, count);
}

// out[i] = max of in[i - 3 .. i + 3] within the row; NaN is ignored. `in` and `out` do not overlap.
inline void max_pool_7(std::span<const float> in, std::span<float> out) {
  const auto greatest = [&](std::size_t first, std::size_t end) {
    float max = -std::numeric_limits<float>::infinity();
    for (std::size_t j = first; j < end; ++j) max = std::max(max, in[j]);  // `max` if in[j] is NaN
    return max;
  };
  pool_7(
      in.size(), [&](std::size_t i, std::size_t first, std::size_t end) { out[i] = greatest(first, end); },
      [&](std::size_t i) { out[i] = greatest(i - kPoolReach, i + kPoolReach + 1); });
}

// out[i] = mean of in[i - 3 .. i + 3] within the row.
inline void mean_pool_7(std::span<const float> in, std::span<float> out) {
  const auto mean = [&](std::size_t first, std::size_t end) {
    float sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += in[j];
    return sum / static_cast<float>(end - first);
  };
  pool_7(
      in.size(), [&](std::size_t i, std::size_t first, std::size_t end) { out[i] = mean(first, end); },
      [&](std::size_t i) { out[i] = mean(i - kPoolReach, i + kPoolReach + 1); });
}

}  // namespace palimpsest
