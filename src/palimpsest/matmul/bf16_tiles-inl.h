// Multiplies panels of bf16 weights with rows of bf16 activations, in tiles (AMX). Internal.
//
// A result is the sum, in ascending order, of sums over kTilePart columns; each is what tiles add, 32 columns at a
// time. A row of a tile is computed by itself: this is so for one token and for many.

#if defined(PALIMPSEST_MATMUL_BF16_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_BF16_TILES_INL_H_
#undef PALIMPSEST_MATMUL_BF16_TILES_INL_H_
#else
#define PALIMPSEST_MATMUL_BF16_TILES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "palimpsest/matmul/codes-inl.h"
#include "palimpsest/matmul/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_SPR && defined(__x86_64__)

constexpr int kTilePart = 256;               // columns
constexpr std::size_t kTileBytes = 16 * 64;  // 32 columns of a panel
constexpr int kAheadTiles = 8;               // weights are prefetched so far ahead

// Tiles: sums of two token tiles and two panels 0 to 3, activations 4 and 5, weights 6 and 7.
inline TileShapes bf16_shapes(int first, int second) {
  TileShapes out;
  for (int t = 0; t < 2; ++t) {
    const int rows = t == 0 ? first : HWY_MAX(second, 1);
    out.set(2 * t, rows, 64);
    out.set(2 * t + 1, rows, 64);
    out.set(4 + t, rows, 64);
    out.set(6 + t, 16, 64);
  }
  return out;
}

// kTiles tiles of tokens, `rows` of each.
template <int kTiles, int kPanels>
HWY_INLINE void multiply_bf16_block(const std::byte* panel, int groups, const std::byte* x, std::int64_t x_stride,
                                    const int (&rows)[2], float* y, std::int64_t y_stride) {
  const auto stride = static_cast<std::size_t>(x_stride) * 64;
  const std::size_t panel_bytes = static_cast<std::size_t>(groups) * kTileBytes;
  const auto each = [](const auto& call) HWY_ATTR {
    for_each(kUpTo<kTiles>, [&](auto t) HWY_ATTR { for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR { call(t, p); }); });
  };
  alignas(64) float part[16][kPanelRows], total[kTiles][kPanels][16][kPanelRows] = {};
  for (int begin = 0; begin < groups; begin += kTilePart / kGroup) {
    each([](auto t, auto p) HWY_ATTR { zero_tile<2 * t + p>(); });
    for (int g = begin; g < HWY_MIN(groups, begin + kTilePart / kGroup); ++g) {
      const std::byte* const weights = panel + static_cast<std::size_t>(g) * kTileBytes;
      for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR {
        const std::byte* const from = weights + static_cast<std::size_t>(p) * panel_bytes;
        for (std::size_t line = 0; line < kTileBytes; line += 64) hwy::Prefetch(from + kAheadTiles * kTileBytes + line);
        load_tile<6 + p>(from, 64);
      });
      for_each(kUpTo<kTiles>, [&](auto t) HWY_ATTR {
        load_tile<4 + t>(x + t * 16 * stride + static_cast<std::size_t>(g) * 64, stride);
        for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR { add_bf16_products<2 * t + p, 4 + t, 6 + p>(); });
      });
    }
    each([&](auto t, auto p) HWY_ATTR {
      store_tile<2 * t + p>(part, 64);
      for (int row = 0; row < rows[t]; ++row) {
        float* const sum = total[t][p][row];
        hn::Store(hn::Add(hn::Load(DF(), sum), hn::Load(DF(), part[row])), DF(), sum);
      }
    });
  }
  each([&](auto t, auto p) HWY_ATTR {
    for (int row = 0; row < rows[t]; ++row)
      hn::StoreU(hn::Load(DF(), total[t][p][row]), DF(), y + (t * 16 + row) * y_stride + p * kPanelRows);
  });
}

inline void multiply_bf16_tiles(const std::byte* panel, int panels, int blocks, const std::byte* x,
                                std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride) {
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * kTileBytes;
  TileUse tiles;
  int shaped = 0;  // tokens that the shapes are for
  for (int p = 0; p < panels; p += 2, panel += 2 * panel_bytes, y += 2 * kPanelRows) {
    for (int t = 0; t < tokens; t += 32) {
      const int count = HWY_MIN(32, tokens - t), rows[2] = {HWY_MIN(count, 16), count - HWY_MIN(count, 16)};
      if (count != shaped) tiles.set(bf16_shapes(rows[0], rows[1]));
      shaped = count;
      const auto multiply = [&]<int kTiles, int kPanels>() HWY_ATTR {
        multiply_bf16_block<kTiles, kPanels>(panel, blocks, x + t * x_stride * 64, x_stride, rows, y + t * y_stride,
                                             y_stride);
      };
      if (p + 1 < panels)
        count > 16 ? multiply.template operator()<2, 2>() : multiply.template operator()<1, 2>();
      else
        count > 16 ? multiply.template operator()<2, 1>() : multiply.template operator()<1, 1>();
    }
  }
}

#endif  // other targets have no tiles

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
