// Multiplies one panel with rows of activations, for an instruction set with 8-bit dot products on 64-byte vectors.
// Internal.

#if defined(PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#undef PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#else
#define PALIMPSEST_MATMUL_INTEGER_PRODUCT_INL_H_
#endif

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

// The codes of a group, [column / 4][row][4].
template <const PanelType& T>
HWY_INLINE void load_codes(const std::byte* block, int group, VU8 (&code)[kCodeVectors]) {
  const DU8 d;
  const hn::Repartition<std::uint16_t, DU8> d16;
  const std::uint8_t* from = u8(block + T.codes_at(group));
  if constexpr (T.bits == 8) {
    for (int s = 0; s < kCodeVectors; ++s) code[s] = hn::LoadU(d, from + s * kVectorBytes);
    return;
  }
  const auto low = hn::Set(d, std::uint8_t{15});
  const auto shifted = [&](VU8 v, int by) HWY_ATTR {  // bits shift into the next byte: mask them
    return hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(d16, v), by));
  };
  const auto lifted = [&](VU8 v, int by)
                          HWY_ATTR { return hn::BitCast(d, hn::ShiftLeftSame(hn::BitCast(d16, v), by)); };
  for (int s = 0; s < 4; ++s) {
    const auto both = hn::LoadU(d, from + s * kVectorBytes);
    code[s] = hn::And(both, low);
    code[s + 4] = hn::And(shifted(both, 4), low);
  }
  const std::uint8_t* high = u8(block + T.high_at(group));
  if constexpr (T.bits == 5) {
    const auto fifth = hn::LoadU(d, high), mask = hn::Set(d, std::uint8_t{16});
    for (int s = 0; s < kCodeVectors; ++s)
      code[s] = hn::Or(code[s], hn::And(s < 4 ? lifted(fifth, 4 - s) : shifted(fifth, s - 4), mask));
  }
  if constexpr (T.bits == 6) {
    const auto mask = hn::Set(d, std::uint8_t{48});
    for (int s = 0; s < kCodeVectors; ++s) {
      const auto two = hn::LoadU(d, high + s / 4 * kVectorBytes);
      const int by = 4 - 2 * (s % 4);
      code[s] = hn::Or(code[s], hn::And(by >= 0 ? lifted(two, by) : shifted(two, -by), mask));
    }
  }
  if constexpr (T.has_table) {
    const auto table = hn::LoadDup128(d, T.table.data());
    for (int s = 0; s < kCodeVectors; ++s) code[s] = hn::TableLookupBytes(table, code[s]);
  }
}

// The exact dot product over code vectors [first, last) of 4 columns each, minus the offset; `negative_sum`: -sum of
// x's codes in these columns.
template <const PanelType& T>
HWY_INLINE VF dot(const VU8 (&code)[kCodeVectors], int first, int last, const std::int8_t* x,
                  const std::int32_t* negative_sum) {
  const DI32 d;
  auto sum = hn::Zero(d);
  if constexpr (T.offset_bits > 0) sum = hn::ShiftLeft<T.offset_bits>(hn::Set(d, *negative_sum));
  for (int s = first; s < last; ++s) {
    std::int32_t four;
    std::memcpy(&four, x + 4 * s, 4);
    sum = hn::SumOfMulQuadAccumulate(d, code[s], hn::BitCast(DI8(), hn::Set(d, four)), sum);
  }
  return hn::ConvertTo(DF(), sum);
}

// Calls `call` with 0 .. N - 1 as constants, so that arrays indexed with them stay in registers.
template <int... I>
HWY_INLINE void for_each(std::integer_sequence<int, I...>, const auto& call) {
  (call(std::integral_constant<int, I>()), ...);
}

template <const PanelType& T, int kTokens>
HWY_INLINE void multiply_tokens(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride,
                                float* y, std::int64_t y_stride) {
  const DF d;
  constexpr auto kAll = std::make_integer_sequence<int, kTokens>();
  VF result[kTokens];
  for_each(kAll, [&](auto t) HWY_ATTR { result[t] = hn::Zero(d); });
  for (int b = 0; b < blocks; ++b, panel += T.block_bytes()) {
    VF outer = hn::Zero(d), outer_min = hn::Zero(d);
    if constexpr (T.scales != ScaleKind::kExponent) outer = halves(panel);
    if constexpr (T.scales == ScaleKind::kWithMin) outer_min = halves(panel + 32);
    for (int g = 0; g < T.groups(); ++g, ++x) {
      VU8 code[kCodeVectors];
      load_codes<T>(panel, g, code);
      VF scale = outer, other = outer;                   // other: scale of the second half, or the min
      if constexpr (T.scales == ScaleKind::kExponent) {  // 2^(e - 128) has the exponent field e - 1
        const auto e = hn::PromoteTo(DI32(), hn::LoadU(hn::FixedTag<std::uint8_t, 16>(), u8(panel)));
        const auto one = hn::Set(DI32(), 1);
        scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(hn::Max(e, one), one)));
      } else if constexpr (T.scales == ScaleKind::kWithMin) {
        scale = hn::Mul(outer, bytes_as_float(panel + 64 + g * 16));
        other = hn::Mul(outer_min, bytes_as_float(panel + 192 + g * 16));
      } else if constexpr (T.scales == ScaleKind::kSigned) {
        scale = hn::Mul(outer, signed_as_float(panel + 32 + g * 32));
        other = hn::Mul(outer, signed_as_float(panel + 48 + g * 32));
      }
      for_each(kAll, [&](auto t) HWY_ATTR {
        const ActivationGroup& a = x[t * x_stride];
        const auto of_token = hn::Set(d, a.scale);
        if constexpr (T.scales == ScaleKind::kSigned) {
          result[t] = hn::MulAdd(dot<T>(code, 0, 4, a.code, &a.half_sums[0]), hn::Mul(scale, of_token), result[t]);
          result[t] = hn::MulAdd(dot<T>(code, 4, 8, a.code, &a.half_sums[1]), hn::Mul(other, of_token), result[t]);
        } else {
          result[t] = hn::MulAdd(dot<T>(code, 0, 8, a.code, &a.negative_sum), hn::Mul(scale, of_token), result[t]);
        }
        if constexpr (T.scales == ScaleKind::kWithMin)
          result[t] = hn::MulAdd(other, hn::Set(d, a.negative_total), result[t]);
      });
    }
  }
  for_each(kAll, [&](auto t) HWY_ATTR { hn::StoreU(result[t], d, y + t * y_stride); });
}

template <const PanelType& T>
void multiply_panel(const std::byte* panel, int blocks, const ActivationGroup* x, std::int64_t x_stride, int tokens,
                    float* y, std::int64_t y_stride) {
  const auto take = [&]<int kTokens>() HWY_ATTR {
    for (; tokens >= kTokens; tokens -= kTokens, x += kTokens * x_stride, y += kTokens * y_stride)
      multiply_tokens<T, kTokens>(panel, blocks, x, x_stride, y, y_stride);
  };
  take.template operator()<12>();
  if constexpr (T.bits < 8) take.template operator()<8>();  // of 8-bit codes, fours are faster (measured)
  take.template operator()<4>();
  take.template operator()<1>();
}

template <const PanelType& T>
void multiply_panels(const std::byte* panel, int panels, int blocks, const std::byte* x, std::int64_t x_stride,
                     int tokens, float* y, std::int64_t y_stride) {
  const auto* const groups = reinterpret_cast<const ActivationGroup*>(x);
  for (int p = 0; p < panels; ++p, panel += static_cast<std::size_t>(blocks) * T.block_bytes(), y += kPanelRows)
    multiply_panel<T>(panel, blocks, groups, x_stride, tokens, y, y_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
