// Chooses the kernel of integer codes for this CPU, and converts activations for all of them.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                                                    \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_NEON | HWY_NEON_BF16 | \
   HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/integer_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/matmul/integer_kernels.h"
#if PALIMPSEST_HAS_PANELS
#include "palimpsest/matmul/quantize-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if PALIMPSEST_HAS_PANELS

ConvertActivations Quantize() {
  return quantize;
}

#else

ConvertActivations Quantize() {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(Quantize);

PanelKernel integer_kernel(ggml_type type) {
  PanelKernel out{.convert = HWY_DYNAMIC_DISPATCH(Quantize)(), .form = ActivationForm::kIntegers};
  const auto take = [&](MultiplyPanels multiply, const char* name) {
    out.multiply = multiply;
    out.name = name;
    return multiply != nullptr;
  };
  if (may_use_amx() && take(tile_product(type), "8-bit dot products; from 16 tokens, tiles")) {
    out.tokens = 16;
    return out;
  }
  constexpr const char* kQuads = "8-bit dot products";
  if (take(quad_product(type), kQuads)) return out;
  if (may_use_avx_vnni() && take(avx_vnni_product(type), kQuads)) return out;
  if (may_use_neon_i8mm() && take(neon_matrix_product(type), "8-bit products of matrices")) return out;
  if (may_use_neon_dot() && take(neon_dot_product(type), kQuads)) return out;
  take(pair_product(type), "pairs of 8-bit products");
  return out;
}

}  // namespace palimpsest
#endif
