// bf16: rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "palimpsest/cache/formats/elementwise.h"

namespace palimpsest {

inline std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f32_from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

namespace bf16 {

struct Codec {
  using Bits = std::uint16_t;
  static constexpr float kLargest = kLargestElement;
  static Bits encode(float value) { return bf16_from_f32(value); }
  static float decode(Bits bits) { return f32_from_bf16(bits); }
};

inline constexpr KvFormat kFormat = Elementwise<Codec>::format("bf16");

}  // namespace bf16
}  // namespace palimpsest
