#pragma once

#include <bit>
#include <cstdint>

#include "palimpsest/cache/formats/elementwise.h"

namespace palimpsest::f32 {

struct Codec {
  using Bits = std::uint32_t;
  static constexpr float kLargest = kLargestElement;
  static Bits encode(float value) { return std::bit_cast<Bits>(value); }
  static float decode(Bits bits) { return std::bit_cast<float>(bits); }
};

inline constexpr KvFormat kFormat = Elementwise<Codec>::format("f32");

}  // namespace palimpsest::f32
