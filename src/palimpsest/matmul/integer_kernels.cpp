// Integer kernels for CPUs with 8-bit dot products on 64-byte vectors (AVX-512 VNNI). Other CPUs use ggml's kernels.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/integer_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <limits>

#include "palimpsest/matmul/panel_kernel.h"
#include "palimpsest/matmul/panel_type.h"
#if HWY_TARGET == HWY_AVX3_DL
#include "palimpsest/matmul/integer_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// Numbers of groups below it count as 0: 127 / max would be infinite.
constexpr float kSmallest = 1e-36F;

void quantize(const float* x, int count, std::byte* groups) {
  auto* out = reinterpret_cast<ActivationGroup*>(groups);
  const DF d;
  const DI32 di;
  const hn::FixedTag<std::int8_t, 16> d8;
  for (int k = 0; k < count; k += kGroup, ++out) {
    const auto a = hn::LoadU(d, x + k), b = hn::LoadU(d, x + k + 16);
    const bool finite = hn::AllTrue(d, hn::And(hn::IsFinite(a), hn::IsFinite(b)));
    const float max = hn::ReduceMax(d, hn::Max(hn::Abs(a), hn::Abs(b)));
    if (!finite || max < kSmallest) {
      *out = ActivationGroup{};
      out->scale = out->negative_total = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    const auto inverse = hn::Set(d, 127.0F / max);
    const auto first = hn::NearestInt(hn::Mul(a, inverse)), second = hn::NearestInt(hn::Mul(b, inverse));
    hn::StoreU(hn::DemoteTo(d8, first), d8, out->code);
    hn::StoreU(hn::DemoteTo(d8, second), d8, out->code + 16);
    out->scale = max / 127.0F;
    const int sums[2] = {hn::ReduceSum(di, first), hn::ReduceSum(di, second)}, sum = sums[0] + sums[1];
    out->negative_total = out->scale * static_cast<float>(-sum);
    out->offset_8 = -8 * sum;
    out->offset_128 = -128 * sum;
    out->half_offset_32[0] = -32 * sums[0];
    out->half_offset_32[1] = -32 * sums[1];
  }
}

MultiplyPanels multiply_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return multiply_panels<kQ4_0>;
    case GGML_TYPE_Q8_0:
      return multiply_panels<kQ8_0>;
    case GGML_TYPE_IQ4_NL:
      return multiply_panels<kIq4Nl>;
    case GGML_TYPE_MXFP4:
      return multiply_panels<kMxfp4>;
    case GGML_TYPE_Q4_K:
      return multiply_panels<kQ4K>;
    case GGML_TYPE_Q5_K:
      return multiply_panels<kQ5K>;
    case GGML_TYPE_Q6_K:
      return multiply_panels<kQ6K>;
    default:
      return nullptr;
  }
}

PanelKernel IntegerKernelOf(ggml_type type) {
  return {multiply_of(type), quantize, ActivationForm::kIntegers};
}

#else

PanelKernel IntegerKernelOf(ggml_type) {
  return {};
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(IntegerKernelOf);

PanelKernel integer_kernel(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(IntegerKernelOf)(type);
}

}  // namespace palimpsest
#endif
