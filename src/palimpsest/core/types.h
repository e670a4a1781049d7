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

// What tokens received from a step's queries, as one number each: of the heads of a query group the mean, summed over
// the queries; of the heads the greatest, summed over the queries; the greatest of all.
enum class WeightReduction { kMeanOverGroup, kMaxOverGroup, kMaxOverAll };

// Element type of cached keys and values.
enum class CacheType {
  kF32,
  kF16,
  kBF16,
  kQ8_0  // bytes, each 32 dimensions times a scale of their own in f16
};

}  // namespace palimpsest
