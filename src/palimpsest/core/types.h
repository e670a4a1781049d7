// Types that all folders use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace palimpsest {

using TokenId = std::int32_t;
using Position = std::int64_t;  // of a token in its sequence, from 0; never wraps

inline constexpr Position kNoPosition = -1;  // of an empty slot

// A slot, a table or another number that is not negative, as an index of a container.
constexpr std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// A non-owning strided matrix of f32 rows: row i starts at data + i * stride.
struct Rows {
  const float* data = nullptr;
  int count = 0;            // rows
  int width = 0;            // floats in a row
  std::int64_t stride = 0;  // floats from row to row

  bool empty() const { return count == 0; }
  Rows rows(int first, int n) const { return {data + first * stride, n, width, stride}; }
  std::span<const float> operator[](int i) const { return {data + i * stride, static_cast<std::size_t>(width)}; }
};

// Reduces the attention weights of a step to one number per token: the mean over the query heads of a group, summed
// over queries; the max over the query heads, summed over queries; or the max over query heads and queries.
enum class WeightReduction { kMeanOverGroup, kMaxOverGroup, kMaxOverAll };

// Element type of cached keys and values.
//   q8_0   signed bytes, an f16 scale for each 32 dimensions
//   q4_0   codes of 4 bits, likewise
//   q4     q4_0 after a Hadamard transform of the row, which loses less
//   q3     codes of 3 bits after that transform, an f16 scale for each 32 dimensions
//   q2     codes of 2 bits, likewise
//
// This list is the order of all arrays by type; snapshots store the index. A row is the enumerator and the name, which
// is that of its format's namespace (cache/formats/) and of its kernels (attention/kernels_*.cpp), too.
#define PALIMPSEST_CACHE_TYPES(X) \
  X(kF32, f32) X(kF16, f16) X(kBF16, bf16) X(kQ8_0, q8_0) X(kQ4_0, q4_0) X(kQ4, q4) X(kQ3, q3) X(kQ2, q2)

enum class CacheType {
#define PALIMPSEST_TYPE(enumerator, name) enumerator,
  PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)
#undef PALIMPSEST_TYPE
};
#define PALIMPSEST_TYPE(enumerator, name) CacheType::enumerator,
inline constexpr CacheType kCacheTypes[] = {PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)};
#undef PALIMPSEST_TYPE

}  // namespace palimpsest
