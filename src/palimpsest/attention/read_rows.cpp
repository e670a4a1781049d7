#include "palimpsest/attention/read_rows.h"

#include <algorithm>
#include <vector>

#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/read_rows.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

HWY_EXPORT(RowProducts);
HWY_EXPORT(RowSquares);

namespace {

// Calls body(page, first slot) for all tiles whose page has memory.
template <typename Body>
void each_tile(const HeadPages& head, int page_size, const Body& body) {
  for (int slot = 0; slot < head.slots->slots; slot += kTile)
    if (const std::byte* const page = head.page[slot / page_size]; page != nullptr) body(page, slot);
}

// Transposes a tile of 16 keys, [dim][16], into 16 rows.
void rows_of_tile(const float* tile, int dim, float* rows) {
  constexpr int kDims = 8;
  for (int first = 0; first < dim; first += kDims)
    for (int lane = 0; lane < kTile; ++lane)
      for (int d = first; d < std::min(dim, first + kDims); ++d) rows[lane * dim + d] = tile[d * kTile + lane];
}

}  // namespace

void read_keys(const LayerView& cache, const HeadPages& head, float* rows) {
  const auto widen = kernels_of(cache.key_type).key.widen;
  const int dim = cache.head_dim;
  thread_local std::vector<float> tile;
  tile.resize(static_cast<std::size_t>(dim * kTile));
  each_tile(head, cache.page_size, [&](const std::byte* page, int slot) {
    widen(page + key_tile(cache, slot % cache.page_size), dim, tile.data());
    rows_of_tile(tile.data(), dim, rows + static_cast<std::ptrdiff_t>(slot) * dim);
  });
}

void read_values(const LayerView& cache, const HeadPages& head, float* rows) {
  const auto widen = kernels_of(cache.value_type).value.widen;
  const int dim = cache.value_dim;
  each_tile(head, cache.page_size, [&](const std::byte* page, int slot) {
    widen(page + value_tile(cache, slot % cache.page_size), dim, 0xffff, rows + static_cast<std::ptrdiff_t>(slot) * dim,
          dim);
  });
}

void row_products(const float* rows, int count, int dim, const float* other, float* out) {
  HWY_DYNAMIC_DISPATCH(RowProducts)(rows, count, dim, other, out);
}

void row_squares(const float* rows, int count, int dim, float* out) {
  HWY_DYNAMIC_DISPATCH(RowSquares)(rows, count, dim, out);
}

}  // namespace palimpsest
#endif
