// The few types that every part speaks.
#pragma once

#include <cstdint>
#include <span>

namespace palimpsest {

using TokenId = std::int32_t;
using Position = std::int64_t;  // place of a token in its sequence, counted from 0; never wraps

inline constexpr Position kNoPosition = -1;  // a slot that holds no token

// A strided matrix of f32 rows that somebody else owns: row i starts at data + i * stride.
struct Rows {
  const float* data = nullptr;
  int count = 0;            // rows
  int width = 0;            // floats in a row
  std::int64_t stride = 0;  // floats from row to row

  bool empty() const { return count == 0; }
  std::span<const float> operator[](int i) const { return {data + i * stride, static_cast<std::size_t>(width)}; }
};

// Element type of cached keys and values.
enum class CacheType { kF32, kF16, kBF16 };

inline constexpr int bytes_per_element(CacheType type) {
  return type == CacheType::kF32 ? 4 : 2;
}

}  // namespace palimpsest
