// Products by Arm's instructions on signed bytes for which Highway has no targets of their own: 8-bit dot products
// (sdot), and products of matrices of 2 x 8 bytes (smmla).
#include "palimpsest/matmul/integer_kernels.h"

#if defined(__aarch64__)

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_NEON | HWY_NEON_BF16 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/neon_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/integer_product-inl.h"
#include "palimpsest/matmul/panel_type.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace {

struct NeonDot {
  static HWY_INLINE VI32 add_four(VI32 sum, VU8 code, VI8 x) {
    // Assembler: the compiler's function needs a target that its callers do not have.
    __asm__(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(sum.raw) : "w"(code.raw), "w"(x.raw));
    return sum;
  }
};

// An instruction adds the products of two rows with two tokens, of eight columns: twice as many as a dot product. Two
// vectors of codes, of four columns each, are zipped into rows of eight. One token is multiplied by dot products.
struct NeonMatrices : QuadDots<NeonDot, true> {
  template <const PanelType& T, int kTokens, int kVectors>
  static HWY_INLINE void sum_part(auto part, const auto& begin, const auto& code_at, const auto& x_at,
                                  VI32 (&sum)[kTokens][kVectors]) {
    if constexpr (kTokens % 2 != 0) {
      QuadDots<NeonDot, true>::sum_part<T, kTokens, kVectors>(part, begin, code_at, x_at, sum);
    } else {
      constexpr int kCount = kCodeVectors / kParts<T>;
      constexpr int kOnlyPlane = 0;
      const hn::Repartition<std::uint32_t, DU8> four;
      const hn::Half<DI8> half;
      VI32 square[kTokens / 2][kVectors][2];  // of rows 0, 1 and of rows 2, 3: [row][token]
      PALIMPSEST_UNROLLED (pair, kTokens / 2) {
        PALIMPSEST_UNROLLED (p, kVectors) square[pair][p][0] = square[pair][p][1] = hn::Zero(DI32());
      }
      for_each(kUpTo<kCount / 2>, [&](auto i) HWY_ATTR {
        constexpr std::integral_constant<int, 2 * i + part*(kCodeVectors / kParts<T>)> s;
        constexpr std::integral_constant<int, s + 1> next;
        VU8 rows[kVectors][2];
        PALIMPSEST_UNROLLED (p, kVectors) {
          const auto a = hn::BitCast(four, code_at(kOnlyPlane, s, p)),
                     b = hn::BitCast(four, code_at(kOnlyPlane, next, p));
          rows[p][0] = hn::BitCast(DU8(), hn::InterleaveLower(four, a, b));
          rows[p][1] = hn::BitCast(DU8(), hn::InterleaveUpper(four, a, b));
        }
        PALIMPSEST_UNROLLED (pair, kTokens / 2) {
          const VI8 x =
              hn::Combine(DI8(), hn::LoadU(half, x_at(2 * pair + 1) + 4 * s), hn::LoadU(half, x_at(2 * pair) + 4 * s));
          PALIMPSEST_UNROLLED (p, kVectors) {
            PALIMPSEST_UNROLLED (h, 2) add_products(square[pair][p][h], rows[p][h], x);
          }
        }
      });
      PALIMPSEST_UNROLLED (pair, kTokens / 2) {
        PALIMPSEST_UNROLLED (p, kVectors) {
          const auto& [low, high] = square[pair][p];
          sum[2 * pair][p] = hn::Add(begin(2 * pair), hn::ConcatEven(DI32(), high, low));
          sum[2 * pair + 1][p] = hn::Add(begin(2 * pair + 1), hn::ConcatOdd(DI32(), high, low));
        }
      }
    }
  }

 private:
  static HWY_INLINE void add_products(VI32& sum, VU8 rows, VI8 x) {
    __asm__(".arch_extension i8mm\n\tsmmla %0.4s, %1.16b, %2.16b" : "+w"(sum.raw) : "w"(rows.raw), "w"(x.raw));
  }
};

}  // namespace

MultiplyPanels NeonDotProduct(ggml_type type) {
  return multiply_of<QuadDots<NeonDot, true>>(type);
}

MultiplyPanels NeonMatrixProduct(ggml_type type) {
  return multiply_of<NeonMatrices>(type);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(NeonDotProduct);
HWY_EXPORT(NeonMatrixProduct);

MultiplyPanels neon_dot_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(NeonDotProduct)(type);
}

MultiplyPanels neon_matrix_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(NeonMatrixProduct)(type);
}

}  // namespace palimpsest
#endif

#else

namespace palimpsest {

MultiplyPanels neon_dot_product(ggml_type) {
  return nullptr;
}

MultiplyPanels neon_matrix_product(ggml_type) {
  return nullptr;
}

}  // namespace palimpsest

#endif
