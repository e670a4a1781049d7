// Kernels for keys and values of q3 and q2. AVX-512 with VNNI, too: nibbles-inl.h.
#include "palimpsest/attention/kernels.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_q3.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfQ3() {
  return &kCodeKernels<Planes<3>>;
}
const FormatKernels* OfQ2() {
  return &kCodeKernels<Planes<2>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfQ3);
HWY_EXPORT(OfQ2);

const FormatKernels& q3_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfQ3)();
}
const FormatKernels& q2_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfQ2)();
}

}  // namespace palimpsest

#include "palimpsest/core/vector_targets.h"  // for the next file
#endif
