// q8_0: signed bytes; each 32 dimensions of a key or value share an f16 scale. The bytes of a tile have the layout of
// the elements of other formats; the scales of its slots follow: [dim / 32][16].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "palimpsest/cache/formats/f16.h"
#include "palimpsest/cache/formats/kv_format.h"
#include "palimpsest/cache/formats/lanes.h"

namespace palimpsest::q8_0 {

inline constexpr int kGroup = 32;  // dimensions that share a scale

inline constexpr std::size_t scales_offset(int dim) {
  return static_cast<std::size_t>(dim) * kTile;
}
inline std::uint16_t scale_at(const std::byte* tile, int dim, int d, int lane) {
  std::uint16_t scale;
  std::memcpy(&scale, tile + scales_offset(dim) + 2 * static_cast<std::size_t>(d / kGroup * kTile + lane), 2);
  return scale;
}

// `step`: distance of consecutive bytes. `scales` has the stride of a tile.
inline void encode(const float* row, int dim, std::byte* bytes, std::ptrdiff_t step, std::byte* scales) {
  for (int first = 0; first < dim; first += kGroup) {
    float max = 0;
    for (int d = first; d < first + kGroup; ++d) max = std::max(max, std::abs(row[d]));
    const std::uint16_t scale = f16_from_f32(max / 127);
    const float unit = f32_from_f16(scale), inverse = unit > 0 ? 1 / unit : 0;
    std::memcpy(scales + 2 * static_cast<std::ptrdiff_t>(first / kGroup * kTile), &scale, 2);
    for (int d = first; d < first + kGroup; ++d) {
      const float x = row[d] * inverse, bounded = x > -127 ? std::min(x, 127.0F) : -127;  // NaN becomes -127
      bytes[d * step] = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(bounded)));
    }
  }
}

inline void encode_key(const float* row, int dim, std::byte* tile, int lane) {
  encode(row, dim, tile + lane, kTile, tile + scales_offset(dim) + 2 * lane);
}
inline void encode_value(const float* row, int dim, std::byte* tile, int lane) {
  encode(row, dim, tile + static_cast<std::ptrdiff_t>(lane) * dim, 1, tile + scales_offset(dim) + 2 * lane);
}
inline void decode_key(const std::byte* tile, int lane, int dim, float* row) {
  for (int d = 0; d < dim; ++d)
    row[d] = f32_from_f16(scale_at(tile, dim, d, lane)) *
             static_cast<float>(static_cast<std::int8_t>(tile[d * kTile + lane]));
}
inline void decode_value(const std::byte* tile, int lane, int dim, float* row) {
  for (int d = 0; d < dim; ++d)
    row[d] =
        f32_from_f16(scale_at(tile, dim, d, lane)) * static_cast<float>(static_cast<std::int8_t>(tile[lane * dim + d]));
}
inline bool fits(const std::byte* tile, int dim) {
  for (int d = 0; d < dim; d += kGroup)
    for (int lane = 0; lane < kTile; ++lane)
      if ((scale_at(tile, dim, d, lane) & 0x7fff) >= 0x7c00) return false;  // infinite or NaN
  return true;
}
inline void relocate_scales(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
  move_lanes<std::uint16_t>(source + scales_offset(dim), from, target + scales_offset(dim), to, n, dim / kGroup);
}
inline void relocate_keys(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
  move_lanes<std::uint8_t>(source, from, target, to, n, dim);
  relocate_scales(source, from, target, to, n, dim);
}
inline void relocate_values(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
  const auto row = static_cast<std::size_t>(dim);
  std::memmove(target + static_cast<std::size_t>(to) * row, source + static_cast<std::size_t>(from) * row,
               static_cast<std::size_t>(n) * row);
  relocate_scales(source, from, target, to, n, dim);
}

inline constexpr KvFormat kFormat = {.name = "q8_0",
                                     .tile_bytes = kTile + kTile * 2 / kGroup,
                                     .group = kGroup,
                                     .largest = 65504.0F * 127,  // the largest scale
                                     .load = nullptr,
                                     .store = nullptr,
                                     .encode_key = encode_key,
                                     .decode_key = decode_key,
                                     .encode_value = encode_value,
                                     .decode_value = decode_value,
                                     .fits = fits,
                                     .relocate_keys = relocate_keys,
                                     .relocate_values = relocate_values};

}  // namespace palimpsest::q8_0
