// Products by 8-bit dot products on 32-byte vectors (AVX-VNNI), for which Highway has no target: the AVX2 target, plus
// one instruction.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV | HWY_AVX3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/avx_vnni_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/integer_kernels.h"
#include "palimpsest/matmul/panel_type.h"
#if HWY_TARGET == HWY_AVX2
#include "palimpsest/matmul/integer_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

namespace {

struct AvxVnni {
  static HWY_INLINE VI32 add_four(VI32 sum, VU8 code, VI8 x) {
    // Assembler: the compiler's function needs a target that its callers do not have.
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(code.raw), "x"(x.raw));
    return sum;
  }
};

}  // namespace

MultiplyPanels AvxVnniProduct(ggml_type type) {
  return multiply_of<QuadDots<AvxVnni>>(type);
}

#else

MultiplyPanels AvxVnniProduct(ggml_type) {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(AvxVnniProduct);

MultiplyPanels avx_vnni_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(AvxVnniProduct)(type);
}

}  // namespace palimpsest
#endif
