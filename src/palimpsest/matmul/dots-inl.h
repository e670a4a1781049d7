// Exact sums of products of codes (unsigned bytes) and activations (signed bytes), on CPUs with and without 8-bit dot
// products: the same integers. Internal.
//
// A class of Dots has, for a type T:
//   kPlanes                   planes that a vector of codes is split into
//   kTilePanels, kTileTokens  panels and tokens whose sums fit into the registers
//   split                     the planes of a vector of codes
//   kCentred                  whether `split` subtracts the offset
//   sum_part                  sum[token][vector] = begin(token) + the products of one part of a group (kParts), with
//                             code_at(plane, s, vector) and x_at(token)

#if defined(PALIMPSEST_MATMUL_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_MATMUL_DOTS_INL_H_
#undef PALIMPSEST_MATMUL_DOTS_INL_H_
#else
#define PALIMPSEST_MATMUL_DOTS_INL_H_
#endif

#include <hwy/highway.h>

#include "palimpsest/matmul/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

// Four codes of x, for all rows.
HWY_INLINE VI8 spread(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, 4);
  return hn::BitCast(DI8(), hn::Set(DI32(), four));
}

// One instruction adds four products of bytes. `Instruction::add_four(sum, code, x)`. kSigned: it takes codes as signed
// bytes, so those of 8 bits are centred.
template <class Instruction, bool kSigned = false>
struct QuadDots {
  template <const PanelType& T>
  static constexpr int kPlanes = 1;
  template <const PanelType& T>
  static constexpr bool kCentred = kSigned && (T.bits == 8 || T.has_table);
  static constexpr int kTilePanels = kSlices == 1 ? 2 : 1;
  template <const PanelType& T>
  static constexpr int kTileTokens = kSlices == 1 ? 6 : 4;

  template <const PanelType& T>
  static HWY_INLINE void split(VU8 code, VU8 (&plane)[1]) {
    plane[0] = kCentred<T> ? hn::Xor(code, hn::Set(DU8(), std::uint8_t{128})) : code;
  }

  template <const PanelType& T, int kTokens, int kVectors>
  static HWY_INLINE void sum_part(auto part, const auto& begin, const auto& code_at, const auto& x_at,
                                  VI32 (&sum)[kTokens][kVectors]) {
    constexpr int kCount = kCodeVectors / kParts<T>;
    PALIMPSEST_UNROLLED (t, kTokens) {
      PALIMPSEST_UNROLLED (p, kVectors) sum[t][p] = begin(t);
    }
    for_each(kUpTo<kCount>, [&](auto i) HWY_ATTR {
      // kCount, written out: its name here crashes g++ 12.
      constexpr std::integral_constant<int, i + part*(kCodeVectors / kParts<T>)> s;
      VU8 code[kVectors];
      PALIMPSEST_UNROLLED (p, kVectors) code[p] = code_at(kOnlyPlane, s, p);
      PALIMPSEST_UNROLLED (t, kTokens) {
        const auto four = spread(x_at(t) + 4 * s);
        PALIMPSEST_UNROLLED (p, kVectors) sum[t][p] = Instruction::add_four(sum[t][p], code[p], four);
      }
    });
  }

 private:
  static constexpr int kOnlyPlane = 0;
};

// An instruction adds two products into 16 bits, saturating. Codes of 4 bits are summed there over a group of 32, of 5
// bits over 16 columns, of 6 bits over 8: 127 * 2 * n * (2^bits - 1) < 2^15. Bytes are split into two planes of 4 bits.
struct PairDots {
  template <const PanelType& T>
  static constexpr int kBits = T.bits == 8 || T.has_table ? 8 : T.bits;
  template <const PanelType& T>
  static constexpr int kPlanes = kBits<T> == 8 ? 2 : 1;
  template <const PanelType& T>
  static constexpr bool kCentred = false;
  static constexpr int kTilePanels = kSlices == 1 ? 2 : 1;
  template <const PanelType& T>
  static constexpr int kTileTokens = kSlices == 1   ? (kPlanes<T> == 1 ? 6 : 4)
                                     : kSlices == 2 ? 4 / kPlanes<T>
                                                    : 2 / kPlanes<T>;

  template <const PanelType& T>
  static HWY_INLINE void split(VU8 code, VU8 (&plane)[kPlanes<T>]) {
    const auto low = hn::Set(DU8(), std::uint8_t{15});
    if constexpr (kPlanes<T> == 2) {
      plane[0] = hn::And(code, low);
      plane[1] = hn::And(shifted<4>(code), low);
    } else {
      plane[0] = code;
    }
  }

  template <const PanelType& T, int kTokens, int kVectors>
  static HWY_INLINE void sum_part(auto part, const auto& begin, const auto& code_at, const auto& x_at,
                                  VI32 (&sum)[kTokens][kVectors]) {
    constexpr int kCount = kCodeVectors / kParts<T>;
    constexpr int kShort = HWY_MIN(kCount, kBits<T> == 5 ? 4 : kBits<T> == 6 ? 2 : 8);  // vectors summed in 16 bits
    const VI16 one = hn::Set(DI16(), std::int16_t{1}), sixteen = hn::Set(DI16(), std::int16_t{16});
    for_each(kUpTo<kCount / kShort>, [&](auto run) HWY_ATTR {
      VI16 pairs[kPlanes<T>][kTokens][kVectors];
      for_each(kUpTo<kShort>, [&](auto i) HWY_ATTR {
        constexpr std::integral_constant<int, run * kShort + i + part*(kCodeVectors / kParts<T>)> s;
        VU8 code[kPlanes<T>][kVectors];
        PALIMPSEST_UNROLLED (plane, kPlanes<T>) {
          PALIMPSEST_UNROLLED (p, kVectors) code[plane][p] = code_at(plane, s, p);
        }
        PALIMPSEST_UNROLLED (t, kTokens) {
          const auto four = spread(x_at(t) + 4 * s);
          PALIMPSEST_UNROLLED (plane, kPlanes<T>) {
            PALIMPSEST_UNROLLED (p, kVectors) {
              const VI16 two = hn::SatWidenMulPairwiseAdd(DI16(), code[plane][p], four);
              pairs[plane][t][p] = i == 0 ? two : hn::Add(pairs[plane][t][p], two);
            }
          }
        }
      });
      PALIMPSEST_UNROLLED (t, kTokens) {
        PALIMPSEST_UNROLLED (p, kVectors) {
          VI32 more = hn::WidenMulPairwiseAdd(DI32(), pairs[0][t][p], one);
          if constexpr (kPlanes<T> == 2) more = hn::Add(more, hn::WidenMulPairwiseAdd(DI32(), pairs[1][t][p], sixteen));
          sum[t][p] = hn::Add(run == 0 ? begin(t) : sum[t][p], more);
        }
      }
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif  // include guard
