// Matmul kernels for CPUs with 8-bit dot products on 64-byte vectors (AVX-512 VNNI). Other CPUs use ggml's kernels.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/panel_type.h"
#if HWY_TARGET == HWY_AVX3_DL
#include "palimpsest/matmul/product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

MultiplyPanel KernelOf(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return multiply_panel<kQ4_0>;
    case GGML_TYPE_Q8_0:
      return multiply_panel<kQ8_0>;
    case GGML_TYPE_IQ4_NL:
      return multiply_panel<kIq4Nl>;
    case GGML_TYPE_MXFP4:
      return multiply_panel<kMxfp4>;
    case GGML_TYPE_Q4_K:
      return multiply_panel<kQ4K>;
    case GGML_TYPE_Q5_K:
      return multiply_panel<kQ5K>;
    case GGML_TYPE_Q6_K:
      return multiply_panel<kQ6K>;
    default:
      return nullptr;
  }
}

void Quantize(const float* x, int count, ActivationGroup* out) {
  const DF d;
  const DI32 di;
  const hn::FixedTag<std::int8_t, 16> d8;
  for (int k = 0; k < count; k += kGroup, ++out) {
    const auto a = hn::LoadU(d, x + k), b = hn::LoadU(d, x + k + 16);
    const float max = hn::ReduceMax(d, hn::Max(hn::Abs(a), hn::Abs(b)));
    const auto inverse = hn::Set(d, max > 0 ? 127.0F / max : 0.0F);
    const auto first = hn::NearestInt(hn::Mul(a, inverse)), second = hn::NearestInt(hn::Mul(b, inverse));
    hn::StoreU(hn::DemoteTo(d8, first), d8, out->code);
    hn::StoreU(hn::DemoteTo(d8, second), d8, out->code + 16);
    out->scale = max / 127.0F;
    out->half_sums[0] = -hn::ReduceSum(di, first);
    out->half_sums[1] = -hn::ReduceSum(di, second);
    out->negative_sum = out->half_sums[0] + out->half_sums[1];
    out->negative_total = out->scale * static_cast<float>(out->negative_sum);
  }
}

#else

MultiplyPanel KernelOf(ggml_type) {
  return nullptr;
}
void Quantize(const float*, int, ActivationGroup*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(KernelOf);
HWY_EXPORT(Quantize);

MultiplyPanel panel_kernel(const PanelType& type) {
  return HWY_DYNAMIC_DISPATCH(KernelOf)(type.type);
}

void quantize_activations(const float* x, int count, ActivationGroup* out) {
  HWY_DYNAMIC_DISPATCH(Quantize)(x, count, out);
}

}  // namespace palimpsest
#endif
