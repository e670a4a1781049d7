// Moves lanes of a tile whose rows are 16 elements, one per slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "palimpsest/cache/formats/kv_format.h"

namespace palimpsest {

// Copies lanes from .. from + n - 1 of every row of one tile to lanes to .. to + n - 1 of another (or of the same if
// to < from). Reads and blends whole rows, so that the compiler vectorizes the loop, except for the first and the last
// row: memory before and after a tile may not belong to the page.
template <typename T>
void move_lanes(const std::byte* source_tile, int from, std::byte* target_tile, int to, int n, int rows) {
  const T* const source = reinterpret_cast<const T*>(source_tile);
  T* const target = reinterpret_cast<T*>(target_tile);
  std::array<T, kTile> mask{}, moved{};
  for (int i = to; i < to + n; ++i) mask[static_cast<std::size_t>(i)] = static_cast<T>(~T{0});
  std::memmove(target + to, source + from, static_cast<std::size_t>(n) * sizeof(T));
  for (int d = 1; d < rows - 1; ++d) {
    std::memcpy(moved.data(), source + d * kTile + from - to, sizeof moved);
    T* row = target + d * kTile;
    for (std::size_t i = 0; i < kTile; ++i)
      row[i] = static_cast<T>((moved[i] & mask[i]) | (row[i] & static_cast<T>(~mask[i])));
  }
  if (rows == 1) return;
  const int last = (rows - 1) * kTile;
  std::memmove(target + last + to, source + last + from, static_cast<std::size_t>(n) * sizeof(T));
}

}  // namespace palimpsest
