// q3, q2: codes of 3 and of 2 bits after the rotation of q4 (q4.h); each 32 dimensions of a key or value share an f16
// scale. A code c means scale * (2 c - kTop - offset), kTop = 7 or 3. The offset is the last bit of the scale:
//   0   odd levels, as many below 0 as above it
//   1   even levels, -kTop - 1 .. kTop - 1: 0 is one of them, and a negative scale turns the longer side
//
// The scale is fitted: the numbers of a group are nearly normal after the rotation, and levels that reach the largest
// of them would lie too far apart for the others. Of three guesses with each kind of levels, each corrected by least
// squares, the one with the smallest squared error is stored (measured: docs/decisions/0058-fewer-bits.md).
//
// A group of a token is kBits words of four bytes, and no byte belongs to two slots:
//   words 0, 1   byte i: the low two bits of the codes of dimensions i, i + 4, i + 8, i + 12 (word 1: and 16 more)
//   word 2       of q3, byte i: the third bit of the codes of dimensions i, i + 4, ..., i + 28
// Four bytes that are multiplied together are neighbours:
//   keys         [dim / 32][kBits][16 slots][4]
//   values       [16 slots / 4][dim / 32][kBits][4][4 slots]
// The scales of the slots follow: [dim / 32][16].
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "palimpsest/cache/formats/f16.h"
#include "palimpsest/cache/formats/kv_format.h"
#include "palimpsest/cache/formats/lanes.h"
#include "palimpsest/cache/formats/q4.h"

namespace palimpsest::planes {

using nibbles::kGroup;

// Byte n of the dim * kBits / 8 bytes of a key's or a value's codes, in its tile.
inline constexpr std::ptrdiff_t key_byte(int lane, int n) {
  return n / 4 * kTile * 4 + lane * 4 + n % 4;
}
template <int kBits>
constexpr std::ptrdiff_t value_byte(int lane, int dim, int n) {
  return std::ptrdiff_t{lane / 4} * dim * kBits / 2 + n * 4 + lane % 4;
}
template <int kBits>
constexpr std::ptrdiff_t scales_offset(int dim) {
  return std::ptrdiff_t{dim} * kTile * kBits / 8;
}
template <int kBits>
constexpr std::ptrdiff_t scale_place(int dim, int lane, int d) {
  return scales_offset<kBits>(dim) + 2 * (d / kGroup * kTile + lane);
}

// The codes of 32 finite numbers; 0 if the scale is 0 or not finite, as it is if the numbers are not.
template <int kBits>
std::array<int, kGroup> codes_of(const float* row, float scale, int offset) {
  constexpr int kTop = (1 << kBits) - 1;
  std::array<int, kGroup> codes{};
  if (scale == 0 || !std::isfinite(scale)) return codes;
  const float inverse = 0.5F / scale, middle = static_cast<float>(kTop + 1 + offset) * 0.5F;
  for (std::size_t i = 0; i < kGroup; ++i) codes[i] = static_cast<int>(row[i] * inverse + middle);  // towards 0
  for (int& code : codes) code = std::clamp(code, 0, kTop);
  return codes;
}

// Some levels of 32 numbers, and the best scale for them: its squared error is the numbers' sum of squares less `gain`.
struct Fit {
  float gain, scale;
};
template <int kBits>
Fit fit_levels(const float* row, float scale, int offset) {
  const std::array<int, kGroup> codes = codes_of<kBits>(row, scale, offset);
  const int lowest = (1 << kBits) - 1 + offset;
  std::array<float, kGroup> products;
  std::array<int, kGroup> squares;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const int level = 2 * codes[i] - lowest;
    products[i] = row[i] * static_cast<float>(level);
    squares[i] = level * level;
  }
  int square = 0;
  for (const int each : squares) square += each;
  for (std::size_t half = kGroup / 2; half > 0; half /= 2)  // in an order that vectors have, too
    for (std::size_t i = 0; i < half; ++i) products[i] += products[i + half];
  if (square == 0) return {0, 0};
  const float best = products[0] / static_cast<float>(square);
  return {best * products[0], best};
}

// The bits of x, which have the order of floats if x is not negative; 0 of NaN.
inline std::int32_t ordered(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits > 0x7f800000 ? 0 : bits;
}

// The stored scale of 32 numbers, row[0 .. 31]. An infinite number makes it infinite; NaN is no number of the group.
template <int kBits>
std::uint16_t fitted_scale(const float* row) {
  constexpr int kTop = (1 << kBits) - 1;
  // Of the scale with which the levels reach the number of the largest magnitude.
  constexpr std::array<float, 3> kOdd = kBits == 2 ? std::array{0.9F, 0.7F, 0.55F} : std::array{0.92F, 0.82F, 0.72F},
                                 kEven = kBits == 2 ? std::array{1.0F, 0.8F, 0.65F} : std::array{1.05F, 0.95F, 0.85F};
  std::int32_t positive = 0, negative = 0;
  for (int i = 0; i < kGroup; ++i) {
    positive = std::max(positive, ordered(row[i]));
    negative = std::max(negative, ordered(-row[i]));
  }
  const bool above = positive > negative;
  const float max = std::bit_cast<float>(std::max(positive, negative));
  if (!(max > 1e-30F && max < 1e17F)) return f16_from_f32(max);  // a product would be 0 or infinite
  Fit best{0, 0};
  int offset = 0;
  for (const float guess : kOdd)
    if (const Fit fit = fit_levels<kBits>(row, max / kTop * guess, 0); fit.gain > best.gain) best = fit;
  const float even = max / (above ? -kTop - 1 : kTop + 1);
  for (const float guess : kEven)
    if (const Fit fit = fit_levels<kBits>(row, even * guess, 1); fit.gain > best.gain) best = fit, offset = 1;
  const float bound = max / kTop;
  return static_cast<std::uint16_t>((f16_from_f32(std::clamp(best.scale, -bound, bound)) & ~1) | offset);
}

template <int kBits>
struct Format {
  static_assert(kBits == 2 || kBits == 3);
  static constexpr int kTop = (1 << kBits) - 1;
  static constexpr int kWords = 4 * kBits;  // bytes of a group's codes

  // Codes and scale of the group of dimensions first .. first + 31, row[0 .. 31].
  template <class ByteOf>
  static void encode_group(const float* row, int first, int dim, std::byte* tile, int lane, const ByteOf& byte_of) {
    const std::uint16_t scale = fitted_scale<kBits>(row);
    std::memcpy(tile + scale_place<kBits>(dim, lane, first), &scale, sizeof scale);
    const std::array<int, kGroup> codes = codes_of<kBits>(row, f32_from_f16(scale), scale & 1);
    std::array<int, kWords> bytes{};
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t quad = 0; quad < 8; ++quad) {
        const int code = codes[4 * quad + i];
        bytes[quad / 4 * 4 + i] |= (code & 3) << quad % 4 * 2;
        if (kBits == 3) bytes[8 % kWords + i] |= code >> 2 << quad;
      }
    }
    for (int n = 0; n < kWords; ++n)
      tile[byte_of(first / kGroup * kWords + n)] = static_cast<std::byte>(bytes[static_cast<std::size_t>(n)]);
  }
  template <class ByteOf>
  static void encode(const float* row, int dim, std::byte* tile, int lane, const ByteOf& byte_of) {
    const int block = nibbles::block_of(dim);
    std::array<float, nibbles::kMaxBlock> rotated;
    for (int first = 0; first < dim; first += block) {
      std::copy_n(row + first, block, rotated.data());
      nibbles::transform(rotated.data(), block, 1);
      for (int part = 0; part < block; part += kGroup)
        encode_group(rotated.data() + part, first + part, dim, tile, lane, byte_of);
    }
  }
  template <class ByteOf>
  static void decode(const std::byte* tile, int lane, int dim, float* row, const ByteOf& byte_of) {
    const auto bits = [&](int n, int shift, int mask) {
      return std::to_integer<int>(tile[byte_of(n)]) >> shift & mask;
    };
    for (int d = 0; d < dim; ++d) {
      const int group = d / kGroup * kWords, i = d % kGroup;
      int code = bits(group + i / 16 * 4 + i % 4, i % 16 / 4 * 2, 3);
      if (kBits == 3) code |= bits(group + 8 + i % 4, i / 4, 1) << 2;
      std::uint16_t scale;
      std::memcpy(&scale, tile + scale_place<kBits>(dim, lane, d), sizeof scale);
      row[d] = f32_from_f16(scale) * static_cast<float>(2 * code - kTop - (scale & 1));
    }
    nibbles::transform(row, dim, 1);
  }

  static void encode_key(const float* row, int dim, std::byte* tile, int lane) {
    encode(row, dim, tile, lane, [&](int n) { return key_byte(lane, n); });
  }
  static void decode_key(const std::byte* tile, int lane, int dim, float* row) {
    decode(tile, lane, dim, row, [&](int n) { return key_byte(lane, n); });
  }
  static void encode_value(const float* row, int dim, std::byte* tile, int lane) {
    encode(row, dim, tile, lane, [&](int n) { return value_byte<kBits>(lane, dim, n); });
  }
  static void decode_value(const std::byte* tile, int lane, int dim, float* row) {
    decode(tile, lane, dim, row, [&](int n) { return value_byte<kBits>(lane, dim, n); });
  }
  static bool fits(const std::byte* tile, int dim) {
    for (int d = 0; d < dim; d += kGroup)
      for (int lane = 0; lane < kTile; ++lane) {
        std::uint16_t scale;
        std::memcpy(&scale, tile + scale_place<kBits>(dim, lane, d), sizeof scale);
        if ((scale & 0x7fff) >= 0x7c00) return false;  // infinite or NaN
      }
    return true;
  }
  static void relocate_scales(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    move_lanes<std::uint16_t>(source + scales_offset<kBits>(dim), from, target + scales_offset<kBits>(dim), to, n,
                              dim / kGroup);
  }
  static void relocate_keys(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    move_lanes<std::uint32_t>(source, from, target, to, n, dim / kGroup * kBits);
    relocate_scales(source, from, target, to, n, dim);
  }
  static void relocate_values(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    for (int i = 0; i < n; ++i)
      for (int b = 0; b < dim * kBits / 8; ++b)
        target[value_byte<kBits>(to + i, dim, b)] = source[value_byte<kBits>(from + i, dim, b)];
    relocate_scales(source, from, target, to, n, dim);
  }

  static constexpr KvFormat format(const char* name) {
    return {.name = name,
            .tile_bytes = kTile * kBits / 8 + kTile * 2 / kGroup,
            .group = kGroup,
            // The largest scale; a transform makes an element at most sqrt(kMaxBlock) times as large.
            .largest = 65504.0F * kTop / 12,
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

}  // namespace palimpsest::planes

namespace palimpsest::q3 {
inline constexpr KvFormat kFormat = planes::Format<3>::format("q3");
}
namespace palimpsest::q2 {
inline constexpr KvFormat kFormat = planes::Format<2>::format("q2");
}
