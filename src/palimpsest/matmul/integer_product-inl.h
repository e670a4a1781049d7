// Multiplies panels of integer codes with rows of activations. `Dots`: how products are summed (dots-inl.h). Internal.

#if defined(PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "palimpsest/matmul/codes-inl.h"
#include "palimpsest/matmul/dots-inl.h"
#include "palimpsest/matmul/panel_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Exact sums begin with -offset times the sum of x's codes, half by half with two scales.
template <class Dots, const PanelType& T>
HWY_INLINE VI32 begin_sum(const ActivationGroup& x, int half) {
  if constexpr (T.offset_bits == 0 || Dots::template kCentred<T>) return hn::Zero(DI32());
  if constexpr (T.scales == ScaleKind::kSigned) return hn::Set(DI32(), x.half_offset_32[half] / (32 >> T.offset_bits));
  return hn::Set(DI32(), T.offset_bits == 3 ? x.offset_8 : T.offset_bits == 4 ? 2 * x.offset_8 : x.offset_128);
}

// Prefetches what is read `kAhead` bytes after a group. Hardware prefetchers fall behind if there is much arithmetic
// between reads, and miss the beginnings of the up to three parts of a block. With vectors of 64 bytes they suffice for
// one token and blocks of one group (measured); with those of 32 bytes a token takes 1.25x without (Zen 3, Q4_0).
constexpr std::size_t kAhead = 4096;
template <const PanelType& T>
HWY_INLINE void prefetch_ahead(const std::byte* block, int group) {
  constexpr std::size_t kBytes = T.block_bytes() / T.groups();
  const std::byte* const at = block + kAhead + static_cast<std::size_t>(group) * kBytes;
  for (std::size_t n = 0; n < kBytes; n += kVectorBytes) hwy::Prefetch(at + n);
}

// Few tokens: the weights are read once, from memory. Vectors of a whole panel: token by token, because a token's sums
// do not need the other codes again; but two planes do not fit into the registers.
template <class Dots, const PanelType& T, int kTokens>
HWY_INLINE void multiply_few_whole(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride,
                                   float* y, std::int64_t y_stride) {
  VF result[kTokens];
  PALIMPSEST_UNROLLED (t, kTokens) result[t] = hn::Zero(DF());
  for (int b = 0; b < blocks; ++b, panel += T.block_bytes()) {
    for (int g = 0; g < T.groups(); ++g, ++x) {
      if constexpr (kTokens > 1 || T.groups() > 1) prefetch_ahead<T>(panel, g);
      VU8 code[kCodeVectors];
      load_codes<T>(panel, g, 0, code);
      const Scales<T> scales = load_scales<T>(panel, g, 0);
      constexpr int kTogether = Dots::template kPlanes<T> == 1 ? 1 : kTokens;
      PALIMPSEST_UNROLLED (turn, kTokens / kTogether) {
        const ActivationGroup* const a = x + turn * kTogether * x_stride;
        VF* const to = &result[turn * kTogether];
        for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
          VI32 sum[kTogether][1];
          Dots::template sum_part<T, kTogether, 1>(
              part, [&](int t) HWY_ATTR { return begin_sum<Dots, T>(a[t * x_stride], part); },
              [&](int plane, int s, int) HWY_ATTR {
                VU8 planes[Dots::template kPlanes<T>];
                Dots::template split<T>(code[s], planes);
                return planes[plane];
              },
              [&](int t) HWY_ATTR { return a[t * x_stride].code; }, sum);
          PALIMPSEST_UNROLLED (t, kTogether) to[t] = add_scaled(sum[t][0], scales.of[part], a[t * x_stride], to[t]);
        });
        PALIMPSEST_UNROLLED (t, kTogether)
          to[t] = add_mins<T>([&](int i) HWY_ATTR { return scales.of[kParts<T> + i]; }, a[t * x_stride], to[t]);
      }
    }
  }
  PALIMPSEST_UNROLLED (t, kTokens) hn::StoreU(result[t], DF(), y + t * y_stride);
}

// Few tokens, vectors of half a panel: a number that is read from x serves both slices; with two planes, whose sums do
// not fit into the registers then, one.
template <class Dots, const PanelType& T, int kTokens>
HWY_INLINE void multiply_few_slices(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride,
                                    float* y, std::int64_t y_stride) {
  constexpr int kTogether = Dots::template kPlanes<T> == 1 ? kSlices : 1;
  VF result[kSlices][kTokens];
  PALIMPSEST_UNROLLED (p, kSlices) {
    PALIMPSEST_UNROLLED (t, kTokens) result[p][t] = hn::Zero(DF());
  }
  for (int b = 0; b < blocks; ++b, panel += T.block_bytes()) {
    for (int g = 0; g < T.groups(); ++g, ++x) {
      prefetch_ahead<T>(panel, g);
      PALIMPSEST_UNROLLED (turn, kSlices / kTogether) {
        const auto slice_of = [&](int p) HWY_ATTR { return turn * kTogether + p; };
        for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
          VI32 sum[kTokens][kTogether];
          Dots::template sum_part<T, kTokens, kTogether>(
              part, [&](int t) HWY_ATTR { return begin_sum<Dots, T>(x[t * x_stride], part); },
              [&](int plane, auto s, int p) HWY_ATTR {
                VU8 planes[Dots::template kPlanes<T>];
                Dots::template split<T>(load_code<T>(panel, g, slice_of(p), s), planes);
                return planes[plane];
              },
              [&](int t) HWY_ATTR { return x[t * x_stride].code; }, sum);
          PALIMPSEST_UNROLLED (p, kTogether) {
            PALIMPSEST_UNROLLED (t, kTokens) {
              VF& to = result[slice_of(p)][t];
              to = add_scaled(sum[t][p], load_scales<T>(panel, g, slice_of(p)).of[part], x[t * x_stride], to);
            }
          }
        });
        PALIMPSEST_UNROLLED (p, kTogether) {
          PALIMPSEST_UNROLLED (t, kTokens) {
            const Scales<T> scales = load_scales<T>(panel, g, slice_of(p));
            VF& to = result[slice_of(p)][t];
            to = add_mins<T>([&](int i) HWY_ATTR { return scales.of[kParts<T> + i]; }, x[t * x_stride], to);
          }
        }
      }
    }
  }
  PALIMPSEST_UNROLLED (p, kSlices) {
    PALIMPSEST_UNROLLED (t, kTokens) hn::StoreU(result[p][t], DF(), y + t * y_stride + p * kLanes);
  }
}

// Many tokens: some groups of one or two panels are decoded into the L1 cache and multiplied with all tokens. With two
// panels, a number that is read from x serves two products.
template <int kPlanes, int kPanels, int kScales>
struct alignas(kVectorBytes) Decoded {
  std::uint8_t code[kPlanes][kCodeVectors][kPanels * kVectorBytes];
  float scale[kScales][kPanels * kPanelRows];  // and mins
};
template <class Dots, const PanelType& T, int kPanels>
using DecodedOf = Decoded<Dots::template kPlanes<T>, kPanels, Scales<T>::kCount>;
constexpr int kDecodedGroups = 8;

template <class Dots, const PanelType& T, int kPanels>
HWY_INLINE void decode(const std::byte* panel, std::size_t panel_bytes, int first_group, int groups,
                       DecodedOf<Dots, T, kPanels>* out) {
  constexpr int kPlanes = Dots::template kPlanes<T>;
  for (int p = 0; p < kPanels; ++p) {
    for (int i = 0; i < groups; ++i) {
      const int group = first_group + i;
      const std::byte* const block = panel + static_cast<std::size_t>(p) * panel_bytes +
                                     static_cast<std::size_t>(group / T.groups()) * T.block_bytes();
      PALIMPSEST_UNROLLED (slice, kSlices) {
        VU8 code[kCodeVectors];
        load_codes<T>(block, group % T.groups(), slice, code);
        PALIMPSEST_UNROLLED (s, kCodeVectors) {
          VU8 planes[kPlanes];
          Dots::template split<T>(code[s], planes);
          PALIMPSEST_UNROLLED (plane, kPlanes)
            hn::Store(planes[plane], DU8(), out[i].code[plane][s] + p * kVectorBytes + slice * kSliceBytes);
        }
        const Scales<T> scales = load_scales<T>(block, group % T.groups(), slice);
        PALIMPSEST_UNROLLED (n, Scales<T>::kCount)
          hn::Store(scales.of[n], DF(), out[i].scale[n] + p * kPanelRows + slice * kLanes);
      }
    }
  }
}

template <class Dots, const PanelType& T, int kPanels, int kTokens>
HWY_INLINE void multiply_decoded(const DecodedOf<Dots, T, kPanels>* group, int groups, bool first,
                                 const ActivationGroup* x, std::int64_t x_stride, float* y, std::int64_t y_stride) {
  constexpr int kVectors = kPanels * kSlices;
  VF result[kTokens][kVectors];
  PALIMPSEST_UNROLLED (t, kTokens) {
    PALIMPSEST_UNROLLED (p, kVectors)
      result[t][p] = first ? hn::Zero(DF()) : hn::LoadU(DF(), y + t * y_stride + p * kLanes);
  }
  for (int g = 0; g < groups; ++g, ++group, ++x) {
    for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
      VI32 sum[kTokens][kVectors];
      Dots::template sum_part<T, kTokens, kVectors>(
          part, [&](int t) HWY_ATTR { return begin_sum<Dots, T>(x[t * x_stride], part); },
          [&](int plane, int s, int p) HWY_ATTR { return hn::Load(DU8(), group->code[plane][s] + p * kSliceBytes); },
          [&](int t) HWY_ATTR { return x[t * x_stride].code; }, sum);
      PALIMPSEST_UNROLLED (t, kTokens) {
        PALIMPSEST_UNROLLED (p, kVectors)
          result[t][p] =
              add_scaled(sum[t][p], hn::Load(DF(), group->scale[part] + p * kLanes), x[t * x_stride], result[t][p]);
      }
    });
    PALIMPSEST_UNROLLED (t, kTokens) {
      PALIMPSEST_UNROLLED (p, kVectors) {
        const auto min_at = [&](int i) HWY_ATTR { return hn::Load(DF(), group->scale[kParts<T> + i] + p * kLanes); };
        result[t][p] = add_mins<T>(min_at, x[t * x_stride], result[t][p]);
      }
    }
  }
  PALIMPSEST_UNROLLED (t, kTokens) {
    PALIMPSEST_UNROLLED (p, kVectors) hn::StoreU(result[t][p], DF(), y + t * y_stride + p * kLanes);
  }
}

// Calls `call` with numbers of tokens that sum to `tokens`, as constants, and the token that each begins with. The last
// eight are two fours, not six and two.
template <int... kSizes>
HWY_INLINE void split_tokens(int tokens, const auto& call) {
  int at = 0;
  const auto take = [&]<int kSize>() HWY_ATTR {
    for (; tokens - at >= kSize && (kSize != 6 || tokens - at != 8); at += kSize)
      call(std::integral_constant<int, kSize>(), at);
  };
  (take.template operator()<kSizes>(), ...);
}

// At most kTokenBlock tokens. Their sums are together in the L1 cache: rows of y are often a power of two apart, where
// they would fall on the same places of the cache.
constexpr int kTokenBlock = 96;

// HWY_FLATTEN: g++ 16 calls lambdas of inner loops otherwise, and a product takes three times as long.
template <class Dots, const PanelType& T, int kPanels>
HWY_NOINLINE HWY_FLATTEN void multiply_many(const std::byte* panel, int blocks, const ActivationGroup* x,
                                            std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride) {
  const int all = blocks * T.groups();
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  DecodedOf<Dots, T, kPanels> decoded[kDecodedGroups];
  constexpr int kWidth = kPanels * kPanelRows;
  alignas(kVectorBytes) float sums[kTokenBlock * kWidth];
  for (int group = 0; group < all; group += kDecodedGroups) {
    const int groups = HWY_MIN(kDecodedGroups, all - group);
    decode<Dots, T, kPanels>(panel, panel_bytes, group, groups, decoded);
    // The next groups are read from memory meanwhile: of these panels, or at the end, of the next ones.
    constexpr int kLines = static_cast<int>(T.block_bytes() * kDecodedGroups / T.groups()) / kVectorBytes;
    const bool last = group + groups == all;
    const std::byte* const next =
        panel +
        (last ? kPanels * panel_bytes : static_cast<std::size_t>(group + groups) / T.groups() * T.block_bytes());
    int line = 0;
    const auto multiply = [&](auto count, int at) HWY_ATTR {
      for (const int end = kPanels * kLines * (at + count) / tokens; line < end; ++line)
        hwy::Prefetch(next + static_cast<std::size_t>(line / kLines) * panel_bytes + line % kLines * kVectorBytes);
      multiply_decoded<Dots, T, kPanels, count>(decoded, groups, group == 0, x + group + at * x_stride, x_stride,
                                                sums + at * kWidth, kWidth);
    };
    if constexpr (Dots::template kTileTokens<T> == 6)
      split_tokens<6, 4, 2, 1>(tokens, multiply);
    else if constexpr (Dots::template kTileTokens<T> == 4)
      split_tokens<4, 2, 1>(tokens, multiply);
    else
      split_tokens<2, 1>(tokens, multiply);
  }
  for (int t = 0; t < tokens; ++t)
    for (int i = 0; i < kWidth; i += kLanes)
      hn::StoreU(hn::Load(DF(), sums + t * kWidth + i), DF(), y + t * y_stride + i);
}

inline constexpr int kMany = 12;  // tokens from which decoding pays (measured)

template <class Dots, const PanelType& T>
HWY_FLATTEN void multiply_panels(const std::byte* panel, int panels, int blocks, const std::byte* x_bytes,
                                 std::int64_t x_stride, int tokens, float* y, std::int64_t y_stride) {
  const auto* const x = reinterpret_cast<const ActivationGroup*>(x_bytes);
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  constexpr int kTilePanels = Dots::kTilePanels;
  const int step = tokens >= kMany ? kTilePanels : 1;
  for (int p = 0; p < panels;
       p += step, panel += static_cast<std::size_t>(step) * panel_bytes, y += step * kPanelRows) {
    const auto few = [&](auto count, int at) HWY_ATTR {
      if constexpr (kSlices > 1)
        multiply_few_slices<Dots, T, count>(panel, blocks, x + at * x_stride, x_stride, y + at * y_stride, y_stride);
      else
        multiply_few_whole<Dots, T, count>(panel, blocks, x + at * x_stride, x_stride, y + at * y_stride, y_stride);
    };
    if constexpr (T.bits == 8 || kSlices > 1) {
      if (tokens < kMany) split_tokens<4, 2, 1>(tokens, few);  // eight are slower (measured)
    } else {
      if (tokens < kMany) split_tokens<8, 4, 2, 1>(tokens, few);
    }
    for (int t = 0; tokens >= kMany && t < tokens; t += kTokenBlock) {
      const int count = HWY_MIN(kTokenBlock, tokens - t);
      if (p + kTilePanels <= panels)
        multiply_many<Dots, T, kTilePanels>(panel, blocks, x + t * x_stride, x_stride, count, y + t * y_stride,
                                            y_stride);
      else
        multiply_many<Dots, T, 1>(panel, blocks, x + t * x_stride, x_stride, count, y + t * y_stride, y_stride);
    }
  }
}

// Calls `take` with the panel type, as a constant; nullptr: not a type of integer codes.
HWY_INLINE MultiplyPanels for_type(ggml_type type, const auto& take) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return take.template operator()<kQ4_0>();
    case GGML_TYPE_Q4_1:
      return take.template operator()<kQ4_1>();
    case GGML_TYPE_Q5_0:
      return take.template operator()<kQ5_0>();
    case GGML_TYPE_Q5_1:
      return take.template operator()<kQ5_1>();
    case GGML_TYPE_Q8_0:
      return take.template operator()<kQ8_0>();
    case GGML_TYPE_IQ4_NL:
      return take.template operator()<kIq4Nl>();
    case GGML_TYPE_IQ4_XS:
      return take.template operator()<kIq4Xs>();
    case GGML_TYPE_MXFP4:
      return take.template operator()<kMxfp4>();
    case GGML_TYPE_Q2_K:
      return take.template operator()<kQ2K>();
    case GGML_TYPE_Q3_K:
      return take.template operator()<kQ3K>();
    case GGML_TYPE_Q4_K:
      return take.template operator()<kQ4K>();
    case GGML_TYPE_Q5_K:
      return take.template operator()<kQ5K>();
    case GGML_TYPE_Q6_K:
      return take.template operator()<kQ6K>();
    default:
      return nullptr;
  }
}

template <class Dots>
MultiplyPanels multiply_of(ggml_type type) {
  return for_type(type, []<const PanelType & T>() HWY_ATTR -> MultiplyPanels { return multiply_panels<Dots, T>; });
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
