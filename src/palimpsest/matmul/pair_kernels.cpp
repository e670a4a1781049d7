// Products in pairs of bytes, on AVX2 and on AVX-512.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                                                    \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_NEON | HWY_NEON_BF16 | HWY_ALL_SVE | \
   HWY_RVV | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/pair_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/integer_kernels.h"
#include "palimpsest/matmul/panel_type.h"
#if PALIMPSEST_HAS_PANELS
#include "palimpsest/matmul/integer_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if PALIMPSEST_HAS_PANELS

MultiplyPanels PairProduct(ggml_type type) {
  return multiply_of<PairDots>(type);
}

#else

MultiplyPanels PairProduct(ggml_type) {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(PairProduct);

MultiplyPanels pair_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(PairProduct)(type);
}

}  // namespace palimpsest
#endif
