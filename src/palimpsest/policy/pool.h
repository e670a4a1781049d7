// Pooling over neighbours: an odd number of them (`kernel`), stride 1, same length.
#pragma once

#include <algorithm>
#include <limits>
#include <span>

namespace palimpsest {

enum class WindowPooling { kAverage, kMax, kNone };

namespace pooling_detail {
// Calls add(out[i], in[j]) for all neighbours j != i within the row. One distance after the other: each is a plain
// loop.
template <class Add>
void add_neighbours(int kernel, std::span<const float> in, std::span<float> out, const Add& add) {
  for (std::size_t d = 1; d <= static_cast<std::size_t>(kernel / 2) && d < in.size(); ++d) {
    for (std::size_t i = d; i < in.size(); ++i) add(out[i], in[i - d]);
    for (std::size_t i = 0; i + d < in.size(); ++i) add(out[i], in[i + d]);
  }
}
}  // namespace pooling_detail

// out[i] = max of the neighbours within the row; NaN is ignored. `in` and `out` do not overlap.
inline void max_pool(int kernel, std::span<const float> in, std::span<float> out) {
  const auto add = [](float& to, float x) { to = std::max(to, x); };  // `to` if x is NaN
  std::ranges::fill(out, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < in.size(); ++i) add(out[i], in[i]);
  pooling_detail::add_neighbours(kernel, in, out, add);
}

// out[i] = sum of the neighbours within the row / kernel: beyond its ends are zeros, as in the authors' avg_pool1d.
inline void average_pool(int kernel, std::span<const float> in, std::span<float> out) {
  std::ranges::copy(in, out.begin());
  pooling_detail::add_neighbours(kernel, in, out, [](float& to, float x) { to += x; });
  for (float& x : out.first(in.size())) x /= static_cast<float>(kernel);
}

inline void pool(WindowPooling how, int kernel, std::span<const float> in, std::span<float> out) {
  if (how == WindowPooling::kMax)
    max_pool(kernel, in, out);
  else if (how == WindowPooling::kAverage)
    average_pool(kernel, in, out);
  else
    std::ranges::copy(in, out.begin());
}

}  // namespace palimpsest
