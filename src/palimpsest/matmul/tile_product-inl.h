// Multiplies panels of integer codes with 16 and more rows of activations, in tiles of bytes (AMX). The sums of a group
// are the same integers, and groups are added in the same order, as in integer_product-inl.h: the same bits. Internal.

#if defined(PALIMPSEST_MATMUL_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_TILE_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_TILE_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_TILE_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include "palimpsest/matmul/integer_kernels.h"
#include "palimpsest/matmul/integer_product-inl.h"
#include "palimpsest/matmul/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL && defined(__x86_64__)

constexpr int kTileRows = 16;

// Codes as signed bytes, their offset subtracted: sums begin with 0.
struct SignedCodes {
  template <const PanelType& T>
  static constexpr int kPlanes = 1;

  template <const PanelType& T>
  static HWY_INLINE void split(VU8 code, VU8 (&plane)[1]) {
    plane[0] = hn::Sub(code, hn::Set(DU8(), static_cast<std::uint8_t>(T.offset_bits > 0 ? 1 << T.offset_bits : 0)));
  }
};

// The tiles: of even and of odd groups of 16 tokens, so that one group's products need not wait for another's, and of
// the last tokens.
struct TileNumbers {
  int sum, x, code;
};
constexpr TileNumbers kTilesOf[3] = {{0, 2, 4}, {1, 3, 5}, {6, 7, 4}};
constexpr int kLast = 2;

template <const PanelType& T>
TileShapes shapes_for(int last) {
  constexpr int kWidth = kGroup / kParts<T>;  // columns of a product
  TileShapes out;
  for (const TileNumbers& each : kTilesOf) {
    const bool is_last = each.sum == kTilesOf[kLast].sum;
    const int rows = is_last && last > 0 ? last : kTileRows;
    out.set(each.sum, rows, kVectorBytes);
    out.set(each.x, rows, kWidth);
    out.set(each.code, kWidth / 4, kVectorBytes);
  }
  return out;
}

// The sums of a group, of at most 16 tokens.
template <const PanelType& T>
struct alignas(kVectorBytes) TileSums {
  std::int32_t sum[kParts<T>][kTileRows][kPanelRows];
};

template <const PanelType& T, int kTiles>
HWY_INLINE void sum_group(const DecodedOf<SignedCodes, T, 1>& group, const ActivationGroup* x, std::int64_t x_stride,
                          TileSums<T>* out) {
  constexpr TileNumbers kUse = kTilesOf[kTiles];
  constexpr int kCount = kCodeVectors / kParts<T>;
  for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
    zero_tile<kUse.sum>();
    load_tile<kUse.code>(group.code[0][part * kCount], kVectorBytes);
    load_tile<kUse.x>(x->code + part * kCount * 4, static_cast<std::size_t>(x_stride) * sizeof(ActivationGroup));
    add_byte_products<kUse.sum, kUse.x, kUse.code>();
    store_tile<kUse.sum>(out->sum[part], kVectorBytes);
  });
}

// Adds the sums of kTokens tokens to their results.
template <const PanelType& T, int kTokens>
HWY_INLINE void add_group(const DecodedOf<SignedCodes, T, 1>& group, const TileSums<T>& sums, int row,
                          const ActivationGroup* x, std::int64_t x_stride, VF (&result)[kTokens]) {
  for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
    const VF scale = hn::Load(DF(), group.scale[part]);
    PALIMPSEST_UNROLLED (t, kTokens)
      result[t] = add_scaled(hn::Load(DI32(), sums.sum[part][row + t]), scale, x[t * x_stride], result[t]);
  });
  const auto min_at = [&](int i) HWY_ATTR { return hn::Load(DF(), group.scale[kParts<T> + i]); };
  PALIMPSEST_UNROLLED (t, kTokens) result[t] = add_mins<T>(min_at, x[t * x_stride], result[t]);
}

template <int kTokens>
HWY_INLINE void load_results(bool first, const float* y, std::int64_t y_stride, VF (&result)[kTokens]) {
  PALIMPSEST_UNROLLED (t, kTokens) result[t] = first ? hn::Zero(DF()) : hn::LoadU(DF(), y + t * y_stride);
}
template <int kTokens>
HWY_INLINE void store_results(const VF (&result)[kTokens], float* y, std::int64_t y_stride) {
  PALIMPSEST_UNROLLED (t, kTokens) hn::StoreU(result[t], DF(), y + t * y_stride);
}

// 16 tokens: a group is summed while the one before is added.
template <const PanelType& T>
HWY_INLINE void multiply_sixteen(const DecodedOf<SignedCodes, T, 1>* group, int groups, bool first,
                                 const ActivationGroup* x, std::int64_t x_stride, float* y, std::int64_t y_stride) {
  TileSums<T> sums[2];
  VF result[kTileRows];
  load_results(first, y, y_stride, result);
  sum_group<T, 0>(group[0], x, x_stride, &sums[0]);
  for (int g = 0; g < groups; ++g) {
    const int next = g + 1;
    if (next < groups && next % 2 == 0)
      sum_group<T, 0>(group[next], x + next, x_stride, &sums[0]);
    else if (next < groups)
      sum_group<T, 1>(group[next], x + next, x_stride, &sums[1]);
    add_group<T>(group[g], sums[g % 2], 0, x + g, x_stride, result);
  }
  store_results(result, y, y_stride);
}

// The last tokens, fewer than 16.
template <const PanelType& T>
HWY_INLINE void multiply_last(const DecodedOf<SignedCodes, T, 1>* group, int groups, bool first,
                              const ActivationGroup* x, std::int64_t x_stride, int tokens, float* y,
                              std::int64_t y_stride) {
  TileSums<T> sums[kDecodedGroups];
  for (int g = 0; g < groups; ++g) sum_group<T, kLast>(group[g], x + g, x_stride, &sums[g]);
  split_tokens<8, 4, 2, 1>(tokens, [&](auto count, int at) HWY_ATTR {
    VF result[count];
    load_results(first, y + at * y_stride, y_stride, result);
    for (int g = 0; g < groups; ++g) add_group<T>(group[g], sums[g], at, x + g + at * x_stride, x_stride, result);
    store_results(result, y + at * y_stride, y_stride);
  });
}

// One or two panels and at most kTokenBlock tokens, as multiply_many: two panels read the same activations from the L1
// cache.
template <const PanelType& T>
HWY_NOINLINE HWY_FLATTEN void multiply_block(const std::byte* panel, int panels, int blocks, const ActivationGroup* x,
                                             std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride) {
  const int all = blocks * T.groups();
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  DecodedOf<SignedCodes, T, 1> decoded[2][kDecodedGroups];
  constexpr int kWidth = 2 * kPanelRows;
  alignas(kVectorBytes) float sums[kTokenBlock * kWidth];
  for (int group = 0; group < all; group += kDecodedGroups) {
    const int groups = HWY_MIN(kDecodedGroups, all - group);
    for (int p = 0; p < panels; ++p)
      decode<SignedCodes, T, 1>(panel + static_cast<std::size_t>(p) * panel_bytes, panel_bytes, group, groups,
                                decoded[p]);
    // The next groups are read from memory meanwhile: of these panels, or at the end, of the next ones.
    constexpr int kLines = static_cast<int>(T.block_bytes() * kDecodedGroups / T.groups()) / kVectorBytes;
    const std::byte* const next =
        panel + (group + groups == all ? static_cast<std::size_t>(panels) * panel_bytes
                                       : static_cast<std::size_t>(group + groups) / T.groups() * T.block_bytes());
    int line = 0;
    for (int t = 0; t < tokens; t += kTileRows) {
      for (const int end = panels * kLines * HWY_MIN(t + kTileRows, tokens) / tokens; line < end; ++line)
        hwy::Prefetch(next + static_cast<std::size_t>(line / kLines) * panel_bytes + line % kLines * kVectorBytes);
      const ActivationGroup* const from = x + group + t * x_stride;
      for (int p = 0; p < panels; ++p) {
        float* const to = sums + t * kWidth + p * kPanelRows;
        if (tokens - t >= kTileRows)
          multiply_sixteen<T>(decoded[p], groups, group == 0, from, x_stride, to, kWidth);
        else
          multiply_last<T>(decoded[p], groups, group == 0, from, x_stride, tokens - t, to, kWidth);
      }
    }
  }
  for (int t = 0; t < tokens; ++t)
    for (int p = 0; p < panels; ++p)
      hn::StoreU(hn::Load(DF(), sums + t * kWidth + p * kPanelRows), DF(), y + t * y_stride + p * kPanelRows);
}

// Fewer tokens than 16 are multiplied without tiles.
template <const PanelType& T>
void multiply_in_tiles(const std::byte* panel, int panels, int blocks, const std::byte* x_bytes, std::int64_t x_stride,
                       int tokens, float* y, std::int64_t y_stride) {
  if (tokens < kTileRows) return quad_product(T.type)(panel, panels, blocks, x_bytes, x_stride, tokens, y, y_stride);
  const auto* const x = reinterpret_cast<const ActivationGroup*>(x_bytes);
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  TileUse tiles;
  tiles.set(shapes_for<T>(tokens % kTileRows));  // kTokenBlock is a multiple of kTileRows
  for (int p = 0; p < panels; p += 2, panel += 2 * panel_bytes, y += 2 * kPanelRows)
    for (int t = 0; t < tokens; t += kTokenBlock)
      multiply_block<T>(panel, HWY_MIN(2, panels - p), blocks, x + t * x_stride, x_stride,
                        HWY_MIN(kTokenBlock, tokens - t), y + t * y_stride, y_stride);
}

inline MultiplyPanels tiles_of(ggml_type type) {
  return for_type(type, []<const PanelType & T>() HWY_ATTR -> MultiplyPanels { return multiply_in_tiles<T>; });
}

#endif  // other targets have no tiles

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
