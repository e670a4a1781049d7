// Kernels for keys and values of q8_0. AVX-512 with VNNI and VBMI, too: integers-inl.h.
#include "palimpsest/attention/kernels.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_q8_0.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfQ80() {
  return &kFormatKernels<std::int8_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfQ80);

const FormatKernels& q8_0_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfQ80)();
}

}  // namespace palimpsest

#include "palimpsest/core/vector_targets.h"  // for the next file
#endif
