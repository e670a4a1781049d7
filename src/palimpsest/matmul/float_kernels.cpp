// Kernels of f32, f16 and bf16 weights, for CPUs with AVX2 or AVX-512; bf16 products where the CPU has them.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX10_2 | HWY_NEON | HWY_NEON_BF16 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/float_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/matmul/panel_kernel.h"
#include "palimpsest/matmul/panel_type.h"
#if PALIMPSEST_HAS_PANELS
#include "palimpsest/matmul/bf16_tiles-inl.h"
#include "palimpsest/matmul/float_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if PALIMPSEST_HAS_PANELS

void copy(const float* x, int count, std::byte* out) {
  std::memcpy(out, x, static_cast<std::size_t>(count) * sizeof(float));
}

#if HWY_NATIVE_DOT_BF16
void round_to_bf16(const float* x, int count, std::byte* out) {
  auto* const to = reinterpret_cast<hwy::bfloat16_t*>(out);
  for (int k = 0; k < count; k += 2 * kLanes)
    hn::StoreU(hn::OrderedDemote2To(DB(), hn::LoadU(DF(), x + k), hn::LoadU(DF(), x + k + kLanes)), DB(), to + k);
}
#endif

PanelKernel FloatKernelOf(ggml_type type) {
  constexpr const char* kName = "f32 multiply-adds";
  if (type == GGML_TYPE_F32) return {multiply_floats<OfF32>, copy, ActivationForm::kF32, kName};
  if (type == GGML_TYPE_F16) return {multiply_floats<OfF16>, copy, ActivationForm::kF32, kName};
#if HWY_TARGET == HWY_AVX3_SPR && defined(__x86_64__)
  if (type == GGML_TYPE_BF16 && may_use_amx())
    return {multiply_bf16_tiles, round_to_bf16, ActivationForm::kBf16, "bf16 tiles", 32};
#endif
#if HWY_NATIVE_DOT_BF16
  if (type == GGML_TYPE_BF16)
    return {multiply_floats<OfBf16>, round_to_bf16, ActivationForm::kBf16, "bf16 dot products"};
#else
  if (type == GGML_TYPE_BF16) return {multiply_floats<OfWideBf16>, copy, ActivationForm::kF32, kName};
#endif
  return {};
}

#else

PanelKernel FloatKernelOf(ggml_type) {
  return {};
}

#endif

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
