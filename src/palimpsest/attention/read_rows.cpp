#include "palimpsest/attention/read_rows.h"

#include <cstring>
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

// Transposes a tile of 16 keys, [dim][16], into 16 rows, in blocks of 4 x 4.
void RowsOfTile(const float* HWY_RESTRICT tile, int dim, float* HWY_RESTRICT rows) {
  const hn::CappedTag<float, kTile> df;
  const hn::RepartitionToWide<decltype(df)> dd;
  const auto lanes = static_cast<int>(hn::Lanes(df));
  HWY_ALIGN float block[4][kTile];  // [i]: elements d to d + 3 of the keys i, i + 4, i + 8, ...
  int d = 0;
  for (; d + 4 <= dim; d += 4)
    for (int n = 0; n < kTile; n += lanes) {
      const float* const in = tile + static_cast<std::ptrdiff_t>(d) * kTile + n;
      const auto a = hn::LoadU(df, in), b = hn::LoadU(df, in + kTile), c = hn::LoadU(df, in + 2 * kTile),
                 e = hn::LoadU(df, in + 3 * kTile);
      const auto ab = hn::BitCast(dd, hn::InterleaveLower(df, a, b)),
                 AB = hn::BitCast(dd, hn::InterleaveUpper(df, a, b)),
                 ce = hn::BitCast(dd, hn::InterleaveLower(df, c, e)),
                 CE = hn::BitCast(dd, hn::InterleaveUpper(df, c, e));
      hn::Store(hn::BitCast(df, hn::InterleaveLower(dd, ab, ce)), df, block[0]);
      hn::Store(hn::BitCast(df, hn::InterleaveUpper(dd, ab, ce)), df, block[1]);
      hn::Store(hn::BitCast(df, hn::InterleaveLower(dd, AB, CE)), df, block[2]);
      hn::Store(hn::BitCast(df, hn::InterleaveUpper(dd, AB, CE)), df, block[3]);
      for (int lane = 0; lane < lanes; ++lane)
        std::memcpy(rows + static_cast<std::ptrdiff_t>(n + lane) * dim + d, block[lane % 4] + lane / 4 * 4,
                    4 * sizeof(float));
    }
  for (; d < dim; ++d)
    for (int lane = 0; lane < kTile; ++lane) rows[lane * dim + d] = tile[d * kTile + lane];
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(RowsOfTile);

namespace {

// Into the L2 cache: hardware prefetchers stop at the end of each 4 KiB, which is a tile of 128 f16 dimensions.
void prefetch(const std::byte* tile, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(tile + at, 0, 2);
}

}  // namespace

void read_keys(const LayerView& cache, const HeadPages& head, float* rows) {
  const auto widen = kernels_of(cache.key_type).key.widen;
  const int dim = cache.head_dim;
  thread_local std::vector<float> tile;
  tile.resize(static_cast<std::size_t>(dim * kTile));
  for (int slot = 0; slot < head.slots->slots; slot += kTile) {
    const std::byte* const page = head.page[slot / cache.page_size];
    if (page == nullptr) continue;
    const int next = slot + kTile;
    if (next < head.slots->slots && head.page[next / cache.page_size] != nullptr)
      prefetch(head.page[next / cache.page_size] + key_tile(cache, next % cache.page_size), key_tile_bytes(cache));
    widen(page + key_tile(cache, slot % cache.page_size), dim, tile.data());
    HWY_DYNAMIC_DISPATCH(RowsOfTile)(tile.data(), dim, rows + static_cast<std::ptrdiff_t>(slot) * dim);
  }
}

void read_value_tile(const LayerView& cache, const HeadPages& head, int slot, float* rows) {
  const std::byte* const page = head.page[slot / cache.page_size];
  if (page == nullptr) return;
  const int dim = cache.value_dim, next = slot + kTile;
  if (next < head.slots->slots && head.page[next / cache.page_size] != nullptr)
    prefetch(head.page[next / cache.page_size] + value_tile(cache, next % cache.page_size), value_tile_bytes(cache));
  const ValueKernels& values = value_kernels_of(cache.value_type);
  values.widen(page + value_tile(cache, slot % cache.page_size), dim, 0xffff, rows, dim);
  for (int i = 0; values.finish != nullptr && i < kTile; ++i) values.finish(rows + std::ptrdiff_t{i} * dim, dim);
}

void read_values(const LayerView& cache, const HeadPages& head, float* rows) {
  for (int slot = 0; slot < head.slots->slots; slot += kTile)
    read_value_tile(cache, head, slot, rows + static_cast<std::ptrdiff_t>(slot) * cache.value_dim);
}

}  // namespace palimpsest
#endif
