// Growth of arrays whose memory is computed in advance: the capacity depends on the length alone, not on the steps that
// led to it. (std::vector's own growth depends on the library and may allocate twice as much.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace palimpsest {

// Entries to allocate for `count`: up to an eighth more, so growth one by one is amortized.
constexpr std::size_t capacity_for(std::size_t count) {
  const std::size_t step = std::max<std::size_t>(1, std::bit_floor(count) / 8);
  return (count + step - 1) / step * step;
}

// Call before `array` grows to `count` entries.
template <typename Array>
void reserve_for(Array& array, std::size_t count) {
  if (array.capacity() < count) array.reserve(capacity_for(count));
}

}  // namespace palimpsest
