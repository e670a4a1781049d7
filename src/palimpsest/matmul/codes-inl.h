// Codes and scales of a panel's groups, in vectors. A vector has kLanes rows of the panel: all 16 rows, or with 32-byte
// vectors one of two slices of 8. Internal.

#if defined(PALIMPSEST_MATMUL_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_CODES_INL_H_
#undef PALIMPSEST_MATMUL_CODES_INL_H_
#else
#define PALIMPSEST_MATMUL_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "palimpsest/matmul/panel_type.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = HWY_MIN(kPanelRows, static_cast<int>(HWY_LANES(float)));
constexpr int kSlices = kPanelRows / kLanes;
constexpr int kSliceBytes = kVectorBytes / kSlices;

using DF = hn::FixedTag<float, kLanes>;
using DI32 = hn::FixedTag<std::int32_t, kLanes>;
using DI16 = hn::FixedTag<std::int16_t, 2 * kLanes>;
using DU8 = hn::FixedTag<std::uint8_t, 4 * kLanes>;
using DI8 = hn::FixedTag<std::int8_t, 4 * kLanes>;
using VF = hn::Vec<DF>;
using VI32 = hn::Vec<DI32>;
using VI16 = hn::Vec<DI16>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;

// Calls `call` with 0 .. N - 1 as constants, so that arrays indexed with them stay in registers.
template <int... I>
HWY_INLINE void for_each(std::integer_sequence<int, I...>, const auto& call) {
  (call(std::integral_constant<int, I>()), ...);
}
template <int kCount>
constexpr auto kUpTo = std::make_integer_sequence<int, kCount>();
// A loop over an index that need not be a constant. Unrolled, so arrays stay in registers, too; it compiles several
// times faster than a function per index.
#define PALIMPSEST_UNROLLED(index, count) HWY_PRAGMA(GCC unroll 64) for (int index = 0; index < (count); ++index)

HWY_INLINE const std::uint8_t* u8(const std::byte* p) {
  return reinterpret_cast<const std::uint8_t*>(p);
}

// The scales of a slice; p: of row 0.
HWY_INLINE VF halves(const std::byte* p, int slice) {
  const hn::Rebind<hwy::float16_t, DF> d;
  return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p) + slice * kLanes));
}
HWY_INLINE VF bytes_as_float(const std::byte* p, int slice) {
  const hn::Rebind<std::uint8_t, DF> d;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, u8(p) + slice * kLanes)));
}
// The low or the high 4 bits of bytes.
HWY_INLINE VF nibbles_as_float(const std::byte* p, int slice, bool high) {
  const hn::Rebind<std::uint8_t, DF> d;
  const auto bytes = hn::PromoteTo(DI32(), hn::LoadU(d, u8(p) + slice * kLanes));
  return hn::ConvertTo(DF(), high ? hn::ShiftRight<4>(bytes) : hn::And(bytes, hn::Set(DI32(), 15)));
}
HWY_INLINE VF signed_as_float(const std::byte* p, int slice) {
  const hn::Rebind<std::int8_t, DF> d;
  const auto* const from = reinterpret_cast<const std::int8_t*>(p) + slice * kLanes;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, from)));
}

// Each byte, shifted right (left, if negative); bits that shift into it from its neighbour are not masked.
template <int kBy>
HWY_INLINE VU8 shifted(VU8 v) {
  const hn::Repartition<std::uint16_t, DU8> d16;
  if constexpr (kBy < 0) return hn::BitCast(DU8(), hn::ShiftLeft<-kBy>(hn::BitCast(d16, v)));
  return hn::BitCast(DU8(), hn::ShiftRight<HWY_MAX(kBy, 0)>(hn::BitCast(d16, v)));
}

// Vector s of the codes of a slice of a group, [column / 4][row][4]; `s` is a constant.
template <const PanelType& T>
HWY_INLINE VU8 load_code(const std::byte* block, int group, int slice, auto s) {
  const DU8 d;
  const std::uint8_t* const from = u8(block + T.codes_at(group)) + slice * kSliceBytes;
  [[maybe_unused]] const std::uint8_t* const high = u8(block + T.high_at(group)) + slice * kSliceBytes;
  if constexpr (T.bits == 8) {
    return hn::LoadU(d, from + s * kVectorBytes);
  } else {
    constexpr int kLow = s / 4 * 4, kQuarter = s % 4;
    VU8 code;
    if constexpr (T.low_bits() == 2) {
      const auto two = hn::LoadU(d, from + s / 4 * kVectorBytes);
      code = hn::And(shifted<2 * kQuarter>(two), hn::Set(d, std::uint8_t{3}));
      if constexpr (T.bits == 3)
        code = hn::Or(code, hn::And(shifted<s - 2>(hn::LoadU(d, high)), hn::Set(d, std::uint8_t{4})));
      return code;
    }
    code = hn::And(shifted<kLow>(hn::LoadU(d, from + kQuarter * kVectorBytes)), hn::Set(d, std::uint8_t{15}));
    if constexpr (T.bits == 5)
      code = hn::Or(code, hn::And(shifted<s - 4>(hn::LoadU(d, high)), hn::Set(d, std::uint8_t{16})));
    if constexpr (T.bits == 6) {
      const auto two = hn::LoadU(d, high + s / 4 * kVectorBytes);
      code = hn::Or(code, hn::And(shifted<2 * kQuarter - 4>(two), hn::Set(d, std::uint8_t{48})));
    }
    if constexpr (T.has_table) code = hn::TableLookupBytes(hn::LoadDup128(d, T.table.data()), code);
    return code;
  }
}
template <const PanelType& T>
HWY_INLINE void load_codes(const std::byte* block, int group, int slice, VU8 (&code)[kCodeVectors]) {
  for_each(kUpTo<kCodeVectors>, [&](auto s) HWY_ATTR { code[s] = load_code<T>(block, group, slice, s); });
}

// A type's parts of a group that have a scale, and mins of a group.
template <const PanelType& T>
constexpr int kParts = T.parts();
template <const PanelType& T>
constexpr int kMins = T.mins();

// The scales of a group of a slice, then its mins.
template <const PanelType& T>
struct Scales {
  static constexpr int kCount = kParts<T> + kMins<T>;
  VF of[kCount];
};
template <const PanelType& T>
HWY_INLINE Scales<T> load_scales(const std::byte* block, int group, int slice) {
  const DF d;
  if constexpr (T.scales == ScaleKind::kExponent) {  // 2^(e - 128) has the exponent field e - 1
    const auto e = hn::PromoteTo(DI32(), hn::LoadU(hn::Rebind<std::uint8_t, DF>(), u8(block) + slice * kLanes));
    const auto one = hn::Set(DI32(), 1);
    return {hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(hn::Max(e, one), one)))};
  } else if constexpr (T.scales == ScaleKind::kWithMin) {
    return {hn::Mul(halves(block, slice), bytes_as_float(block + 64 + group * 16, slice)),
            hn::Mul(halves(block + 32, slice), bytes_as_float(block + 192 + group * 16, slice))};
  } else if constexpr (T.scales == ScaleKind::kHalfAndSum) {
    return {halves(block, slice), hn::Neg(halves(block + 32, slice))};
  } else if constexpr (T.scales == ScaleKind::kOfGroups) {
    return {hn::Mul(halves(block, slice), signed_as_float(block + 32 + group * 16, slice))};
  } else if constexpr (T.scales == ScaleKind::kSigned) {
    const VF outer = halves(block, slice);
    return {hn::Mul(outer, signed_as_float(block + 32 + group * 32, slice)),
            hn::Mul(outer, signed_as_float(block + 48 + group * 32, slice))};
  } else if constexpr (T.scales == ScaleKind::kHalvesWithMin) {
    const VF scale = halves(block, slice), min = halves(block + 32, slice);
    const std::byte *const first = block + 64 + group * 32, *const second = first + 16;
    return {hn::Mul(scale, nibbles_as_float(first, slice, false)),
            hn::Mul(scale, nibbles_as_float(second, slice, false)), hn::Mul(min, nibbles_as_float(first, slice, true)),
            hn::Mul(min, nibbles_as_float(second, slice, true))};
  } else {
    return {halves(block, slice)};
  }
}

HWY_INLINE VF add_scaled(VI32 sum, VF scale, const ActivationGroup& x, VF result) {
  return hn::MulAdd(hn::ConvertTo(DF(), sum), hn::Mul(scale, hn::Set(DF(), x.scale)), result);
}
// `min_at(i)`: the mins of a group. With two, each is multiplied with the sum of its half of x.
template <const PanelType& T>
HWY_INLINE VF add_mins(const auto& min_at, const ActivationGroup& x, VF result) {
  if constexpr (kMins<T> == 1) {
    result = hn::MulAdd(min_at(0), hn::Set(DF(), x.negative_total), result);
  } else if constexpr (kMins<T> == 2) {
    for (int half = 0; half < 2; ++half) {
      const float negative = x.scale * static_cast<float>(x.half_offset_32[half]) / 32;
      result = hn::MulAdd(min_at(half), hn::Set(DF(), negative), result);
    }
  }
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
