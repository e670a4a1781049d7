#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "palimpsest/cache/formats/elementwise.h"

namespace palimpsest::f32 {

struct Codec {
  using Bits = std::uint32_t;
  static Bits encode(float value) { return std::bit_cast<Bits>(value); }
  static float decode(Bits bits) { return std::bit_cast<float>(bits); }
};

inline constexpr KvFormat kFormat = Elementwise<Codec>::format("f32", std::numeric_limits<float>::max());

}  // namespace palimpsest::f32
