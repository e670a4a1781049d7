// Kernels of f32, f16 and bf16 weights, for CPUs with 64-byte vectors; bf16 products where the CPU has them.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/float_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>

#include "palimpsest/matmul/panel_kernel.h"
#include "palimpsest/matmul/panel_type.h"
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4 || HWY_TARGET == HWY_AVX3_SPR
#define PALIMPSEST_LONG_VECTORS 1
#include "palimpsest/matmul/float_product-inl.h"
#else
#define PALIMPSEST_LONG_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if PALIMPSEST_LONG_VECTORS

void copy(const float* x, int count, std::byte* out) {
  std::memcpy(out, x, static_cast<std::size_t>(count) * sizeof(float));
}

#if HWY_NATIVE_DOT_BF16
void round_to_bf16(const float* x, int count, std::byte* out) {
  auto* const to = reinterpret_cast<hwy::bfloat16_t*>(out);
  for (int k = 0; k < count; k += kGroup)
    hn::StoreU(hn::OrderedDemote2To(DB(), hn::LoadU(DF(), x + k), hn::LoadU(DF(), x + k + 16)), DB(), to + k);
}
#endif

PanelKernel FloatKernelOf(ggml_type type) {
  if (type == GGML_TYPE_F32) return {multiply_floats<OfF32>, copy, ActivationForm::kF32};
  if (type == GGML_TYPE_F16) return {multiply_floats<OfF16>, copy, ActivationForm::kF32};
#if HWY_NATIVE_DOT_BF16
  if (type == GGML_TYPE_BF16) return {multiply_floats<OfBf16>, round_to_bf16, ActivationForm::kBf16};
#endif
  return {};
}

#else

PanelKernel FloatKernelOf(ggml_type) {
  return {};
}

#endif
#undef PALIMPSEST_LONG_VECTORS

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(FloatKernelOf);

PanelKernel float_kernel(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(FloatKernelOf)(type);
}

}  // namespace palimpsest
#endif
