#include "palimpsest/attention/read_rows.h"

#include <algorithm>

#include "palimpsest/attention/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/read_rows.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kTile>;

HWY_INLINE auto get(const float* from) {
  return hn::LoadU(F(), from);
}
template <class T>
HWY_INLINE auto get(const T* from) {
  return hn::PromoteTo(F(), hn::LoadU(hn::Rebind<T, F>(), from));
}

// 16 keys side by side -> 16 rows.
template <class T>
HWY_INLINE void read_tile(const T* HWY_RESTRICT tile, int dim, float* HWY_RESTRICT rows) {
  constexpr int kBlock = 8;
  const int lanes = static_cast<int>(hn::Lanes(F()));
  HWY_ALIGN float block[kBlock][kTile];
  for (int first = 0; first < dim; first += kBlock) {
    const int count = std::min(kBlock, dim - first);
    for (int d = 0; d < count; ++d)
      for (int n = 0; n < kTile; n += lanes) hn::Store(get(tile + (first + d) * kTile + n), F(), block[d] + n);
    for (int lane = 0; lane < kTile; ++lane)
      for (int d = 0; d < count; ++d) rows[lane * dim + first + d] = block[d][lane];
  }
}

// 16 rows, one after the other, as values lie in their pages.
template <class T>
HWY_INLINE void read_rows(const T* HWY_RESTRICT tile, int dim, float* HWY_RESTRICT rows) {
  const int lanes = static_cast<int>(hn::Lanes(F()));
  for (int i = 0; i < kTile * dim; i += lanes) hn::StoreU(get(tile + i), F(), rows + i);
}

// All tiles that have memory: read(numbers of the tile's type, its first row); of q8_0 element by element,
// load(page, slot in it, dimension). `place`: of a tile in its page, by its first slot.
template <class Place, class Read, class Load>
HWY_INLINE void each_tile(const LayerView& cache, const HeadPages& head, int dim, float* rows, const Place& place,
                          const Read& read, const Load& load) {
  for (int slot = 0; slot < head.slots->slots; slot += kTile) {
    const std::byte* const page = head.page[slot / cache.page_size];
    if (page == nullptr) continue;
    const int offset = slot % cache.page_size;
    const std::byte* const tile = page + place(cache, offset);
    float* const to = rows + static_cast<std::ptrdiff_t>(slot) * dim;
    switch (cache.type) {
      case CacheType::kF32:
        read(reinterpret_cast<const float*>(tile), to);
        break;
      case CacheType::kF16:
        read(reinterpret_cast<const hwy::float16_t*>(tile), to);
        break;
      case CacheType::kBF16:
        read(reinterpret_cast<const hwy::bfloat16_t*>(tile), to);
        break;
      case CacheType::kQ8_0:
        for (int lane = 0; lane < kTile; ++lane)
          for (int d = 0; d < dim; ++d) to[lane * dim + d] = load(cache, page, offset + lane, d);
        break;
    }
  }
}

void ReadKeys(const LayerView& cache, const HeadPages& head, float* rows) {
  const int dim = cache.head_dim;
  each_tile(
      cache, head, dim, rows, key_tile, [dim](const auto* tile, float* to) { read_tile(tile, dim, to); }, load_key);
}

void ReadValues(const LayerView& cache, const HeadPages& head, float* rows) {
  const int dim = cache.value_dim;
  each_tile(
      cache, head, dim, rows, value_tile, [dim](const auto* tile, float* to) { read_rows(tile, dim, to); }, load_value);
}

template <class Other>
HWY_INLINE void multiply_rows(const float* HWY_RESTRICT rows, int count, int dim, const Other& other,
                              float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const auto lanes = static_cast<int>(hn::Lanes(df));
  for (int i = 0; i < count; ++i) {
    const float* const row = rows + static_cast<std::ptrdiff_t>(i) * dim;
    auto sum = hn::Zero(df);
    int d = 0;
    for (; d + lanes <= dim; d += lanes) sum = hn::MulAdd(hn::LoadU(df, row + d), hn::LoadU(df, other(row) + d), sum);
    float rest = 0;
    for (; d < dim; ++d) rest += row[d] * other(row)[d];
    out[i] = hn::ReduceSum(df, sum) + rest;
  }
}

void RowProducts(const float* rows, int count, int dim, const float* other, float* out) {
  multiply_rows(
      rows, count, dim, [other](const float*) { return other; }, out);
}

void RowSquares(const float* rows, int count, int dim, float* out) {
  multiply_rows(
      rows, count, dim, [](const float* row) { return row; }, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(ReadKeys);
HWY_EXPORT(ReadValues);
HWY_EXPORT(RowProducts);
HWY_EXPORT(RowSquares);

void read_keys(const LayerView& cache, const HeadPages& head, float* rows) {
  HWY_DYNAMIC_DISPATCH(ReadKeys)(cache, head, rows);
}

void read_values(const LayerView& cache, const HeadPages& head, float* rows) {
  HWY_DYNAMIC_DISPATCH(ReadValues)(cache, head, rows);
}

void row_products(const float* rows, int count, int dim, const float* other, float* out) {
  HWY_DYNAMIC_DISPATCH(RowProducts)(rows, count, dim, other, out);
}

void row_squares(const float* rows, int count, int dim, float* out) {
  HWY_DYNAMIC_DISPATCH(RowSquares)(rows, count, dim, out);
}

}  // namespace palimpsest
#endif
