// One number of a cache page, rounded to nearest even on its way in.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Element `index` of an array of `type` that starts at `data`.
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

}  // namespace palimpsest
