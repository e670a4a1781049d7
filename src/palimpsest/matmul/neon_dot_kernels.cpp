// Products by 8-bit dot products of signed bytes on 16-byte vectors (Arm's sdot), for which Highway has no target of
// its own: NEON, plus one instruction.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_NEON | HWY_NEON_BF16 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/neon_dot_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/integer_kernels.h"
#include "palimpsest/matmul/panel_type.h"
#if HWY_ARCH_ARM_A64
#include "palimpsest/matmul/integer_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_ARCH_ARM_A64

namespace {

struct NeonDot {
  static HWY_INLINE VI32 add_four(VI32 sum, VU8 code, VI8 x) {
    // Assembler: the compiler's function needs a target that its callers do not have.
    __asm__(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(sum.raw) : "w"(code.raw), "w"(x.raw));
    return sum;
  }
};

}  // namespace

MultiplyPanels NeonDotProduct(ggml_type type) {
  return multiply_of<QuadDots<NeonDot, true>>(type);
}

#else

MultiplyPanels NeonDotProduct(ggml_type) {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(NeonDotProduct);

MultiplyPanels neon_dot_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(NeonDotProduct)(type);
}

}  // namespace palimpsest
#endif
