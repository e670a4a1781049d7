// Numbers of a cache page, rounded to nearest even on their way in.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "palimpsest/cache/view.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

inline std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  std::uint32_t half = 0;
  if (rest > 0x7f800000) {
    half = 0x7e00;  // not a number
  } else if (rest >= 0x477ff000) {
    half = 0x7c00;  // 65,520 and more round to infinity
  } else if (rest < 0x38800000) {
    // Below 2^-14: the addition aligns the value with 2^-24, the last place of a subnormal, and rounds it.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
  } else {
    half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float f32_from_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest < 0x400) return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::ldexp(float(rest), -24)));
  const std::uint32_t bits = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : (rest << 13) + 0x38000000;
  return std::bit_cast<float>(sign | bits);
}

inline std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f32_from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Not q8_0: element `index` of an array of `type` that starts at `data`.
inline float load_element(const std::byte* data, CacheType type, std::size_t index) {
  if (type == CacheType::kF32) {
    float value;
    std::memcpy(&value, data + 4 * index, 4);
    return value;
  }
  std::uint16_t value;
  std::memcpy(&value, data + 2 * index, 2);
  return type == CacheType::kF16 ? f32_from_f16(value) : f32_from_bf16(value);
}

inline void store_element(std::byte* data, CacheType type, std::size_t index, float value) {
  if (type == CacheType::kF32) {
    std::memcpy(data + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t rounded = type == CacheType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(data + 2 * index, &rounded, 2);
}

// q8_0: `bytes` and `scales` are as far apart as the caller says.
inline void store_scaled(const float* row, int dim, std::int8_t* bytes, std::ptrdiff_t byte_step, std::uint16_t* scales,
                         std::ptrdiff_t scale_step) {
  for (int first = 0; first < dim; first += kScaled) {
    float most = 0;
    for (int d = first; d < first + kScaled; ++d) most = std::max(most, std::abs(row[d]));
    const std::uint16_t scale = f16_from_f32(most / 127);
    const float unit = f32_from_f16(scale), inverse = unit > 0 ? 1 / unit : 0;
    scales[first / kScaled * scale_step] = scale;
    for (int d = first; d < first + kScaled; ++d)
      bytes[d * byte_step] = static_cast<std::int8_t>(std::nearbyint(std::clamp(row[d] * inverse, -127.0f, 127.0f)));
  }
}

// Any type: dimension d of the key (value) in slot `offset` of a page, and the whole of it.
inline float load_scaled(const std::byte* tile, int dim, std::size_t index, int d, int lane) {
  std::uint16_t scale;
  std::memcpy(&scale, tile + scales_offset(dim) + 2 * static_cast<std::size_t>(d / kScaled * kTile + lane), 2);
  return f32_from_f16(scale) * static_cast<float>(static_cast<std::int8_t>(tile[index]));
}
inline float load_key(const LayerView& v, const std::byte* page, int offset, int d) {
  if (v.type != CacheType::kQ8_0) return load_element(page, v.type, key_index(v, offset, d));
  const int lane = offset % kTile;
  return load_scaled(page + key_tile(v, offset), v.head_dim, static_cast<std::size_t>(d * kTile + lane), d, lane);
}
inline float load_value(const LayerView& v, const std::byte* page, int offset, int d) {
  if (v.type != CacheType::kQ8_0)
    return load_element(page + value_offset(v), v.type, value_index(v, offset) + static_cast<std::size_t>(d));
  const int lane = offset % kTile;
  return load_scaled(page + value_tile(v, offset), v.value_dim, static_cast<std::size_t>(lane * v.value_dim + d), d,
                     lane);
}
inline void store_key(const LayerView& v, std::byte* page, int offset, const float* key) {
  if (v.type == CacheType::kQ8_0) {
    std::byte* const tile = page + key_tile(v, offset);
    store_scaled(key, v.head_dim, reinterpret_cast<std::int8_t*>(tile) + offset % kTile, kTile,
                 reinterpret_cast<std::uint16_t*>(tile + scales_offset(v.head_dim)) + offset % kTile, kTile);
    return;
  }
  for (int d = 0; d < v.head_dim; ++d) store_element(page, v.type, key_index(v, offset, d), key[d]);
}
inline void store_value(const LayerView& v, std::byte* page, int offset, const float* value) {
  if (v.type == CacheType::kQ8_0) {
    std::byte* const tile = page + value_tile(v, offset);
    store_scaled(value, v.value_dim, reinterpret_cast<std::int8_t*>(tile) + offset % kTile * v.value_dim, 1,
                 reinterpret_cast<std::uint16_t*>(tile + scales_offset(v.value_dim)) + offset % kTile, kTile);
    return;
  }
  for (int d = 0; d < v.value_dim; ++d)
    store_element(page + value_offset(v), v.type, value_index(v, offset) + static_cast<std::size_t>(d), value[d]);
}

}  // namespace palimpsest
