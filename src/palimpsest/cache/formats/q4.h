// q4_0: codes of 4 bits; each 32 dimensions of a key or value share an f16 scale.
// q4: the same after an orthogonal rotation, a Hadamard transform of blocks of the row. It spreads a large element over
// the block, so that the scale fits all (QuaRot, arXiv 2404.00456). Decoding rotates back.
//
// No byte belongs to two slots, and four bytes that are multiplied together are neighbours:
//   keys    [dim / 8][16 slots][4]:            byte i holds dimensions i (low bits) and i + 4
//   values  [16 slots / 4][dim / 2][4 slots]:  byte i of each 16 holds dimensions i (low bits) and i + 16 of 32
// The scales of the slots follow: [dim / 32][16].
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "palimpsest/cache/formats/f16.h"
#include "palimpsest/cache/formats/kv_format.h"
#include "palimpsest/cache/formats/lanes.h"

namespace palimpsest::nibbles {

inline constexpr int kGroup = 32;      // dimensions that share a scale
inline constexpr int kMaxBlock = 128;  // dimensions of the largest Hadamard transform
inline constexpr int kZero = 8;        // the code of 0

inline constexpr std::ptrdiff_t scales_offset(int dim) {
  return std::ptrdiff_t{dim} * kTile / 2;
}

// The largest power of two that divides dim, a multiple of 32; at most kMaxBlock.
inline constexpr int block_of(int dim) {
  return std::min(dim & -dim, kMaxBlock);
}

// The normalized Hadamard transform of each block of `rows` rows of `width` floats; it is its own inverse.
inline void transform(float* data, int rows, int width) {
  const int block = block_of(rows);
  for (int half = 1; half < block; half *= 2)
    for (int first = 0; first < rows; first += 2 * half)
      for (int i = first * width; i < (first + half) * width; ++i) {
        const float a = data[i], b = data[i + half * width];
        data[i] = a + b;
        data[i + half * width] = a - b;
      }
  const float factor = 1 / std::sqrt(static_cast<float>(block));
  for (int i = 0; i < rows * width; ++i) data[i] *= factor;
}

struct Place {
  std::ptrdiff_t byte;
  int shift;
};
inline constexpr Place key_place(int lane, int d) {
  return {d / 8 * kTile * 4 + lane * 4 + d % 4, d % 8 / 4 * 4};
}
// Byte `at` of the dim / 2 bytes of a value.
inline constexpr std::ptrdiff_t value_byte(int lane, int dim, int at) {
  return std::ptrdiff_t{lane / 4} * dim * 2 + at * 4 + lane % 4;
}
inline constexpr Place value_place(int lane, int dim, int d) {
  return {value_byte(lane, dim, d / kGroup * 16 + d % 16), d % kGroup / 16 * 4};
}
inline constexpr std::ptrdiff_t scale_place(int dim, int lane, int d) {
  return scales_offset(dim) + 2 * (d / kGroup * kTile + lane);
}

// Codes and scale of one group, row[0 .. 31], which is dimensions `first` on of the slot. place(d): of its dimension d.
template <class PlaceOf>
void encode_group(const float* row, int first, int dim, std::byte* tile, int lane, const PlaceOf& place) {
  float extreme = 0;  // becomes the code 0, so that all 16 codes are used
  for (int i = 0; i < kGroup; ++i)
    if (std::abs(row[i]) > std::abs(extreme)) extreme = row[i];
  const std::uint16_t scale = f16_from_f32(extreme / -kZero);
  const float unit = f32_from_f16(scale), inverse = unit != 0 ? 1 / unit : 0;
  std::memcpy(tile + scale_place(dim, lane, first), &scale, sizeof scale);
  for (int i = 0; i < kGroup; ++i) {
    const float x = row[i] * inverse + (kZero + 0.5F);
    const int code = x > 0 ? static_cast<int>(std::min(x, 15.0F)) : 0;  // NaN becomes 0
    const Place at = place(first + i);
    const int kept = std::to_integer<int>(tile[at.byte]) & (0xf0 >> at.shift);
    tile[at.byte] = static_cast<std::byte>(kept | code << at.shift);
  }
}

template <bool kRotated>
struct Format {
  template <class PlaceOf>
  static void encode(const float* row, int dim, std::byte* tile, int lane, const PlaceOf& place) {
    const int block = kRotated ? block_of(dim) : kGroup;
    std::array<float, kMaxBlock> rotated;
    for (int first = 0; first < dim; first += block) {
      std::copy_n(row + first, block, rotated.data());
      if (kRotated) transform(rotated.data(), block, 1);
      for (int part = 0; part < block; part += kGroup)
        encode_group(rotated.data() + part, first + part, dim, tile, lane, place);
    }
  }
  template <class PlaceOf>
  static void decode(const std::byte* tile, int lane, int dim, float* row, const PlaceOf& place) {
    for (int d = 0; d < dim; ++d) {
      const Place at = place(d);
      std::uint16_t scale;
      std::memcpy(&scale, tile + scale_place(dim, lane, d), sizeof scale);
      row[d] = f32_from_f16(scale) * static_cast<float>((std::to_integer<int>(tile[at.byte]) >> at.shift & 15) - kZero);
    }
    if (kRotated) transform(row, dim, 1);
  }

  static void encode_key(const float* row, int dim, std::byte* tile, int lane) {
    encode(row, dim, tile, lane, [&](int d) { return key_place(lane, d); });
  }
  static void decode_key(const std::byte* tile, int lane, int dim, float* row) {
    decode(tile, lane, dim, row, [&](int d) { return key_place(lane, d); });
  }
  static void encode_value(const float* row, int dim, std::byte* tile, int lane) {
    encode(row, dim, tile, lane, [&](int d) { return value_place(lane, dim, d); });
  }
  static void decode_value(const std::byte* tile, int lane, int dim, float* row) {
    decode(tile, lane, dim, row, [&](int d) { return value_place(lane, dim, d); });
  }
  static bool fits(const std::byte* tile, int dim) {
    for (int d = 0; d < dim; d += kGroup)
      for (int lane = 0; lane < kTile; ++lane) {
        std::uint16_t scale;
        std::memcpy(&scale, tile + scale_place(dim, lane, d), sizeof scale);
        if ((scale & 0x7fff) >= 0x7c00) return false;  // infinite or NaN
      }
    return true;
  }
  static void relocate_scales(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    move_lanes<std::uint16_t>(source + scales_offset(dim), from, target + scales_offset(dim), to, n, dim / kGroup);
  }
  static void relocate_keys(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    move_lanes<std::uint32_t>(source, from, target, to, n, dim / 8);
    relocate_scales(source, from, target, to, n, dim);
  }
  static void relocate_values(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    for (int i = 0; i < n; ++i)
      for (int d = 0; d < dim / 2; ++d) target[value_byte(to + i, dim, d)] = source[value_byte(from + i, dim, d)];
    relocate_scales(source, from, target, to, n, dim);
  }

  static constexpr KvFormat format(const char* name) {
    return {.name = name,
            .tile_bytes = kTile / 2 + kTile * 2 / kGroup,
            .group = kGroup,
            // The largest scale; a transform makes an element at most sqrt(kMaxBlock) times as large.
            .largest = 65504.0F * kZero / (kRotated ? 12 : 1),
            .load = nullptr,
            .store = nullptr,
            .encode_key = encode_key,
            .decode_key = decode_key,
            .encode_value = encode_value,
            .decode_value = decode_value,
            .fits = fits,
            .relocate_keys = relocate_keys,
            .relocate_values = relocate_values};
  }
};

}  // namespace palimpsest::nibbles

namespace palimpsest::q4_0 {
inline constexpr KvFormat kFormat = nibbles::Format<false>::format("q4_0");
}
namespace palimpsest::q4 {
inline constexpr KvFormat kFormat = nibbles::Format<true>::format("q4");
}
