// Multiplies one panel with rows of activations, for an instruction set with 8-bit dot products on 64-byte vectors.
// Internal.

#if defined(PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "palimpsest/matmul/panel_type.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::FixedTag<float, 16>;
using DI32 = hn::FixedTag<std::int32_t, 16>;
using DU8 = hn::FixedTag<std::uint8_t, 64>;
using DI8 = hn::FixedTag<std::int8_t, 64>;
using VF = hn::Vec<DF>;
using VU8 = hn::Vec<DU8>;

HWY_INLINE const std::uint8_t* u8(const std::byte* p) {
  return reinterpret_cast<const std::uint8_t*>(p);
}

// 16 scales.
HWY_INLINE VF halves(const std::byte* p) {
  const hn::FixedTag<hwy::float16_t, 16> d;
  return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE VF bytes_as_float(const std::byte* p) {
  const hn::FixedTag<std::uint8_t, 16> d;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, u8(p))));
}
HWY_INLINE VF signed_as_float(const std::byte* p) {
  const hn::FixedTag<std::int8_t, 16> d;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, reinterpret_cast<const std::int8_t*>(p))));
}

// Calls `call` with 0 .. N - 1 as constants, so that arrays indexed with them stay in registers.
template <int... I>
HWY_INLINE void for_each(std::integer_sequence<int, I...>, const auto& call) {
  (call(std::integral_constant<int, I>()), ...);
}
template <int kCount>
constexpr auto kUpTo = std::make_integer_sequence<int, kCount>();

// Each byte, shifted right (left, if negative); bits that shift into it from its neighbour are not masked.
template <int kBy>
HWY_INLINE VU8 shifted(VU8 v) {
  const hn::Repartition<std::uint16_t, DU8> d16;
  if constexpr (kBy < 0) return hn::BitCast(DU8(), hn::ShiftLeft<-kBy>(hn::BitCast(d16, v)));
  return hn::BitCast(DU8(), hn::ShiftRight<HWY_MAX(kBy, 0)>(hn::BitCast(d16, v)));
}

// The codes of a group, [column / 4][row][4].
template <const PanelType& T>
HWY_INLINE void load_codes(const std::byte* block, int group, VU8 (&code)[kCodeVectors]) {
  const DU8 d;
  const std::uint8_t* const from = u8(block + T.codes_at(group));
  const std::uint8_t* const high = u8(block + T.high_at(group));
  for_each(kUpTo<kCodeVectors>, [&](auto s) HWY_ATTR {
    if constexpr (T.bits == 8) {
      code[s] = hn::LoadU(d, from + s * kVectorBytes);
      return;
    }
    constexpr int kLow = s / 4 * 4, kQuarter = s % 4;
    code[s] = hn::And(shifted<kLow>(hn::LoadU(d, from + kQuarter * kVectorBytes)), hn::Set(d, std::uint8_t{15}));
    if constexpr (T.bits == 5)
      code[s] = hn::Or(code[s], hn::And(shifted<s - 4>(hn::LoadU(d, high)), hn::Set(d, std::uint8_t{16})));
    if constexpr (T.bits == 6) {
      const auto two = hn::LoadU(d, high + s / 4 * kVectorBytes);
      code[s] = hn::Or(code[s], hn::And(shifted<2 * kQuarter - 4>(two), hn::Set(d, std::uint8_t{48})));
    }
    if constexpr (T.has_table) code[s] = hn::TableLookupBytes(hn::LoadDup128(d, T.table.data()), code[s]);
  });
}

// The scales of a group of 16 rows; `other`: of the second half of its columns, or the mins.
struct Scales {
  VF scale, other;
};
template <const PanelType& T>
HWY_INLINE Scales load_scales(const std::byte* block, int group) {
  const DF d;
  if constexpr (T.scales == ScaleKind::kExponent) {  // 2^(e - 128) has the exponent field e - 1
    const auto e = hn::PromoteTo(DI32(), hn::LoadU(hn::FixedTag<std::uint8_t, 16>(), u8(block)));
    const auto one = hn::Set(DI32(), 1);
    return {hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(hn::Max(e, one), one))), hn::Zero(d)};
  } else if constexpr (T.scales == ScaleKind::kWithMin) {
    return {hn::Mul(halves(block), bytes_as_float(block + 64 + group * 16)),
            hn::Mul(halves(block + 32), bytes_as_float(block + 192 + group * 16))};
  } else if constexpr (T.scales == ScaleKind::kSigned) {
    const VF outer = halves(block);
    return {hn::Mul(outer, signed_as_float(block + 32 + group * 32)),
            hn::Mul(outer, signed_as_float(block + 48 + group * 32))};
  } else {
    return {halves(block), hn::Zero(d)};
  }
}

// Exact sums: they begin with -offset times the sum of x's codes, half by half with two scales.
template <const PanelType& T>
HWY_INLINE hn::Vec<DI32> begin_sum(const ActivationGroup& x, int half) {
  if constexpr (T.offset_bits == 0) return hn::Zero(DI32());
  if constexpr (T.scales == ScaleKind::kSigned) return hn::Set(DI32(), x.half_offset_32[half]);
  return hn::Set(DI32(), T.offset_bits == 3 ? x.offset_8 : x.offset_128);
}
HWY_INLINE hn::Vec<DI32> add_dot(hn::Vec<DI32> sum, VU8 code, hn::Vec<DI8> x) {
  return hn::SumOfMulQuadAccumulate(DI32(), code, x, sum);
}
// Four codes of x, for all rows.
HWY_INLINE hn::Vec<DI8> spread(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, 4);
  return hn::BitCast(DI8(), hn::Set(DI32(), four));
}
HWY_INLINE VF add_scaled(hn::Vec<DI32> sum, VF scale, const ActivationGroup& x, VF result) {
  return hn::MulAdd(hn::ConvertTo(DF(), sum), hn::Mul(scale, hn::Set(DF(), x.scale)), result);
}
template <const PanelType& T>
HWY_INLINE VF add_min(VF min, const ActivationGroup& x, VF result) {
  if constexpr (T.scales != ScaleKind::kWithMin) return result;
  return hn::MulAdd(min, hn::Set(DF(), x.negative_total), result);
}

// A type's parts of a group that have a scale of their own.
template <const PanelType& T>
constexpr int kParts = T.scales == ScaleKind::kSigned ? 2 : 1;

// Prefetches what is read `kAhead` bytes after a group. Hardware prefetchers fall behind if there is much arithmetic
// between reads, and miss the beginnings of the up to three parts of a block. For one token and blocks of one group
// they suffice (measured).
constexpr std::size_t kAhead = 4096;
template <const PanelType& T>
HWY_INLINE void prefetch_ahead(const std::byte* block, int group) {
  constexpr std::size_t kBytes = T.block_bytes() / T.groups();
  const std::byte* const at = block + kAhead + static_cast<std::size_t>(group) * kBytes;
  for (std::size_t n = 0; n < kBytes; n += kVectorBytes) hwy::Prefetch(at + n);
}

// Few tokens: the weights are read once, from memory.
template <const PanelType& T, int kTokens>
HWY_INLINE void multiply_few(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride,
                             float* y, std::int64_t y_stride) {
  VF result[kTokens];
  for_each(kUpTo<kTokens>, [&](auto t) HWY_ATTR { result[t] = hn::Zero(DF()); });
  for (int b = 0; b < blocks; ++b, panel += T.block_bytes()) {
    for (int g = 0; g < T.groups(); ++g, ++x) {
      if constexpr (kTokens > 1 || T.groups() > 1) prefetch_ahead<T>(panel, g);
      VU8 code[kCodeVectors];
      load_codes<T>(panel, g, code);
      const Scales scales = load_scales<T>(panel, g);
      for_each(kUpTo<kTokens>, [&](auto t) HWY_ATTR {
        const ActivationGroup& a = x[t * x_stride];
        constexpr int kVectors = kCodeVectors / kParts<T>;
        for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
          auto sum = begin_sum<T>(a, part);
          for_each(kUpTo<kVectors>, [&](auto v) HWY_ATTR {
            constexpr int s = part * kVectors + v;
            sum = add_dot(sum, code[s], spread(a.code + 4 * s));
          });
          result[t] = add_scaled(sum, part == 0 ? scales.scale : scales.other, a, result[t]);
        });
        result[t] = add_min<T>(scales.other, a, result[t]);
      });
    }
  }
  for_each(kUpTo<kTokens>, [&](auto t) HWY_ATTR { hn::StoreU(result[t], DF(), y + t * y_stride); });
}

// Many tokens: some groups of one or two panels are decoded into the L1 cache and multiplied with all tokens. With two
// panels, a number that is read from x serves two products.
template <int kPanels>
struct alignas(kVectorBytes) Decoded {
  std::uint8_t code[kCodeVectors][kPanels][kVectorBytes];
  float scale[2][kPanels][kPanelRows];
};
constexpr int kDecodedGroups = 8;

template <const PanelType& T, int kPanels>
void decode(const std::byte* panel, std::size_t panel_bytes, int first_group, int groups, Decoded<kPanels>* out) {
  for (int p = 0; p < kPanels; ++p) {
    for (int i = 0; i < groups; ++i) {
      const int group = first_group + i;
      const std::byte* const block = panel + static_cast<std::size_t>(p) * panel_bytes +
                                     static_cast<std::size_t>(group / T.groups()) * T.block_bytes();
      VU8 code[kCodeVectors];
      load_codes<T>(block, group % T.groups(), code);
      const Scales scales = load_scales<T>(block, group % T.groups());
      for (int s = 0; s < kCodeVectors; ++s) hn::Store(code[s], DU8(), out[i].code[s][p]);
      hn::Store(scales.scale, DF(), out[i].scale[0][p]);
      hn::Store(scales.other, DF(), out[i].scale[1][p]);
    }
  }
}

template <const PanelType& T, int kPanels, int kTokens>
HWY_INLINE void multiply_decoded(const Decoded<kPanels>* group, int groups, bool first, const ActivationGroup* x,
                                 std::int64_t x_stride, float* y, std::int64_t y_stride) {
  const auto each = [](const auto& call) HWY_ATTR {
    for_each(kUpTo<kTokens>, [&](auto t) HWY_ATTR { for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR { call(t, p); }); });
  };
  VF result[kTokens][kPanels];
  each([&](auto t, auto p)
           HWY_ATTR { result[t][p] = first ? hn::Zero(DF()) : hn::LoadU(DF(), y + t * y_stride + p * kPanelRows); });
  for (int g = 0; g < groups; ++g, ++group, ++x) {
    for_each(kUpTo<kParts<T>>, [&](auto part) HWY_ATTR {
      constexpr int kVectors = kCodeVectors / kParts<T>;
      hn::Vec<DI32> sum[kTokens][kPanels];
      each([&](auto t, auto p) HWY_ATTR { sum[t][p] = begin_sum<T>(x[t * x_stride], part); });
      for_each(kUpTo<kVectors>, [&](auto v) HWY_ATTR {
        constexpr int s = part * kVectors + v;
        VU8 code[kPanels];
        for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR { code[p] = hn::Load(DU8(), group->code[s][p]); });
        for_each(kUpTo<kTokens>, [&](auto t) HWY_ATTR {
          const auto four = spread(x[t * x_stride].code + 4 * s);
          for_each(kUpTo<kPanels>, [&](auto p) HWY_ATTR { sum[t][p] = add_dot(sum[t][p], code[p], four); });
        });
      });
      each([&](auto t, auto p) HWY_ATTR {
        result[t][p] = add_scaled(sum[t][p], hn::Load(DF(), group->scale[part][p]), x[t * x_stride], result[t][p]);
      });
    });
    each([&](auto t, auto p) HWY_ATTR {
      result[t][p] = add_min<T>(hn::Load(DF(), group->scale[1][p]), x[t * x_stride], result[t][p]);
    });
  }
  each([&](auto t, auto p) HWY_ATTR { hn::StoreU(result[t][p], DF(), y + t * y_stride + p * kPanelRows); });
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

template <const PanelType& T, int kPanels>
void multiply_many(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride, int tokens,
                   float* y, std::int64_t y_stride) {
  const int all = blocks * T.groups();
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  Decoded<kPanels> decoded[kDecodedGroups];
  constexpr int kWidth = kPanels * kPanelRows;
  alignas(kVectorBytes) float sums[kTokenBlock * kWidth];
  for (int group = 0; group < all; group += kDecodedGroups) {
    const int groups = HWY_MIN(kDecodedGroups, all - group);
    decode<T, kPanels>(panel, panel_bytes, group, groups, decoded);
    // The next groups are read from memory meanwhile: of these panels, or at the end, of the next ones.
    constexpr int kLines = static_cast<int>(T.block_bytes() * kDecodedGroups / T.groups()) / kVectorBytes;
    const bool last = group + groups == all;
    const std::byte* const next =
        panel +
        (last ? kPanels * panel_bytes : static_cast<std::size_t>(group + groups) / T.groups() * T.block_bytes());
    int line = 0;
    split_tokens<6, 4, 2, 1>(tokens, [&](auto count, int at) HWY_ATTR {
      for (const int end = kPanels * kLines * (at + count) / tokens; line < end; ++line)
        hwy::Prefetch(next + static_cast<std::size_t>(line / kLines) * panel_bytes + line % kLines * kVectorBytes);
      multiply_decoded<T, kPanels, count>(decoded, groups, group == 0, x + group + at * x_stride, x_stride,
                                          sums + at * kWidth, kWidth);
    });
  }
  for (int t = 0; t < tokens; ++t)
    for (int i = 0; i < kWidth; i += kPanelRows)
      hn::StoreU(hn::Load(DF(), sums + t * kWidth + i), DF(), y + t * y_stride + i);
}

inline constexpr int kMany = 12;  // tokens from which decoding pays (measured)

template <const PanelType& T>
void multiply_panels(const std::byte* panel, int panels, int blocks, const std::byte* x_bytes, std::int64_t x_stride,
                     int tokens, float* y, std::int64_t y_stride) {
  const auto* const x = reinterpret_cast<const ActivationGroup*>(x_bytes);
  const std::size_t panel_bytes = static_cast<std::size_t>(blocks) * T.block_bytes();
  const int step = tokens >= kMany ? 2 : 1;
  for (int p = 0; p < panels;
       p += step, panel += static_cast<std::size_t>(step) * panel_bytes, y += step * kPanelRows) {
    const auto few = [&](auto count, int at) HWY_ATTR {
      multiply_few<T, count>(panel, blocks, x + at * x_stride, x_stride, y + at * y_stride, y_stride);
    };
    if (tokens < kMany && T.bits == 8)
      split_tokens<4, 2, 1>(tokens, few);  // eight are slower (measured)
    else if (tokens < kMany)
      split_tokens<8, 4, 2, 1>(tokens, few);
    for (int t = 0; tokens >= kMany && t < tokens; t += kTokenBlock) {
      const int count = HWY_MIN(kTokenBlock, tokens - t);
      if (p + 1 < panels)
        multiply_many<T, 2>(panel, blocks, x + t * x_stride, x_stride, count, y + t * y_stride, y_stride);
      else
        multiply_many<T, 1>(panel, blocks, x + t * x_stride, x_stride, count, y + t * y_stride, y_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
