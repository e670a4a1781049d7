#include "palimpsest/cache/carry.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace palimpsest {
namespace {

// How many of `moves` are neighbours that stay inside one K tile on both sides: they are carried together, because a
// tile keeps neighbouring slots' elements side by side.
int run_length(std::span<const Move> moves) {
  std::size_t n = 1;
  while (n < moves.size() && moves[n].from == moves[n - 1].from + 1 && moves[n].to == moves[n - 1].to + 1 &&
         moves[n].from % kTile != 0 && moves[n].to % kTile != 0)
    ++n;
  return static_cast<int>(n);
}

// Lanes from .. from + n - 1 of every row of one tile to lanes to .. to + n - 1 of another (or of the same: to < from
// then). Whole rows are read and blended, so that the compiler makes vectors of it; the first and the last row are not:
// what lies before and behind a tile may not be the page's.
template <typename T>
void carry_keys(const T* source, int from, T* target, int to, int n, int head_dim) {
  std::array<T, kTile> mask{}, moved{};
  for (int i = to; i < to + n; ++i) mask[static_cast<std::size_t>(i)] = static_cast<T>(~T{0});
  std::memmove(target + to, source + from, static_cast<std::size_t>(n) * sizeof(T));
  for (int d = 1; d < head_dim - 1; ++d) {
    std::memcpy(moved.data(), source + d * kTile + from - to, sizeof moved);
    T* row = target + d * kTile;
    for (std::size_t i = 0; i < kTile; ++i)
      row[i] = static_cast<T>((moved[i] & mask[i]) | (row[i] & static_cast<T>(~mask[i])));
  }
  if (head_dim == 1) return;
  const int last = (head_dim - 1) * kTile;
  std::memmove(target + last + to, source + last + from, static_cast<std::size_t>(n) * sizeof(T));
}

template <typename T>
void carry_as(const LayerView& shape, std::byte* const* sources, std::byte* const* targets,
              std::span<const Move> moves) {
  const std::size_t values = value_offset(shape);
  const std::size_t row = static_cast<std::size_t>(shape.value_dim) * sizeof(T);
  while (!moves.empty()) {
    const int n = run_length(moves);
    const Move first = moves.front();
    std::byte* source = sources[first.from / shape.page_size];
    std::byte* target = targets[first.to / shape.page_size];
    const int from = first.from % shape.page_size, to = first.to % shape.page_size;
    const int from_lane = from % kTile, to_lane = to % kTile;
    for (const std::size_t keys : {std::size_t{0}, half_offset(shape)}) {
      if (keys > 0 && !shape.rotated_half) break;
      carry_keys(reinterpret_cast<const T*>(source + keys) + key_index(shape, from - from_lane, 0), from_lane,
                 reinterpret_cast<T*>(target + keys) + key_index(shape, to - to_lane, 0), to_lane, n, shape.head_dim);
    }
    std::memmove(target + values + value_index(shape, to) * sizeof(T),
                 source + values + value_index(shape, from) * sizeof(T), static_cast<std::size_t>(n) * row);
    moves = moves.subspan(static_cast<std::size_t>(n));
  }
}

// q8_0: bytes, and scales that lie as keys do.
void carry_scaled(const LayerView& shape, std::byte* const* sources, std::byte* const* targets,
                  std::span<const Move> moves) {
  const auto carry_scales = [](const std::byte* from_tile, int from, std::byte* to_tile, int to, int n, int dim) {
    carry_keys(reinterpret_cast<const std::uint16_t*>(from_tile + scales_offset(dim)), from,
               reinterpret_cast<std::uint16_t*>(to_tile + scales_offset(dim)), to, n, dim / kScaled);
  };
  while (!moves.empty()) {
    const int n = run_length(moves);
    const Move first = moves.front();
    const int from = first.from % shape.page_size, to = first.to % shape.page_size;
    const int from_lane = from % kTile, to_lane = to % kTile;
    const std::byte* source = sources[first.from / shape.page_size];
    std::byte* target = targets[first.to / shape.page_size];
    const std::byte *key = source + key_tile(shape, from), *value = source + value_tile(shape, from);
    std::byte *new_key = target + key_tile(shape, to), *new_value = target + value_tile(shape, to);
    carry_keys(reinterpret_cast<const std::uint8_t*>(key), from_lane, reinterpret_cast<std::uint8_t*>(new_key), to_lane,
               n, shape.head_dim);
    carry_scales(key, from_lane, new_key, to_lane, n, shape.head_dim);
    std::memmove(new_value + to_lane * shape.value_dim, value + from_lane * shape.value_dim,
                 static_cast<std::size_t>(n) * static_cast<std::size_t>(shape.value_dim));
    carry_scales(value, from_lane, new_value, to_lane, n, shape.value_dim);
    moves = moves.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace

void carry(const LayerView& shape, std::byte* const* source, std::byte* const* target, std::span<const Move> moves) {
  if (shape.type == CacheType::kQ8_0)
    carry_scaled(shape, source, target, moves);
  else if (bytes_per_element(shape.type) == 2)
    carry_as<std::uint16_t>(shape, source, target, moves);
  else
    carry_as<std::uint32_t>(shape, source, target, moves);
}

}  // namespace palimpsest
