// How arrays grow that are counted beforehand: what they allocate follows from their length alone, whatever steps led
// to it. (std::vector's own growth depends on the library, and may double what was counted.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace palimpsest {

// Entries to allocate for `count`: up to an eighth more, so growing one by one copies each entry a bounded number of
// times.
constexpr std::size_t capacity_for(std::size_t count) {
  const std::size_t step = std::max<std::size_t>(1, std::bit_floor(count) / 8);
  return (count + step - 1) / step * step;
}

// Before `array` grows to `count` entries.
template <typename Array>
void reserve_for(Array& array, std::size_t count) {
  if (array.capacity() < count) array.reserve(capacity_for(count));
}

}  // namespace palimpsest
