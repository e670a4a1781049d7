// f16: rounds to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "palimpsest/cache/formats/elementwise.h"

namespace palimpsest {

inline std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  std::uint32_t half = 0;
  if (rest > 0x7f800000) {
    half = 0x7e00;  // NaN
  } else if (rest >= 0x477ff000) {
    half = 0x7c00;  // 65,520 and more round to infinity
  } else if (rest < 0x38800000) {
    // Below 2^-14: the addition aligns the value with 2^-24, the last bit of a subnormal, and rounds it.
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

namespace f16 {

struct Codec {
  using Bits = std::uint16_t;
  // The largest float below 65520, which rounds to infinity: it is halfway between 65504, the largest f16, and 65536.
  static constexpr float kLargest = 65519.99609375F;
  static Bits encode(float value) { return f16_from_f32(value); }
  static float decode(Bits bits) { return f32_from_f16(bits); }
};

inline constexpr KvFormat kFormat = Elementwise<Codec>::format("f16");

}  // namespace f16
}  // namespace palimpsest
