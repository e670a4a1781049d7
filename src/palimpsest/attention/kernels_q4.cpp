// Kernels for keys and values of q4_0 and q4. AVX-512 with VNNI, too: nibbles-inl.h.
#include "palimpsest/attention/kernels.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_q4.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/nibbles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfQ40() {
  return &kCodeKernels<Nibbles<false>>;
}
const FormatKernels* OfQ4() {
  return &kCodeKernels<Nibbles<true>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfQ40);
HWY_EXPORT(OfQ4);

const FormatKernels& q4_0_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfQ40)();
}
const FormatKernels& q4_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfQ4)();
}

}  // namespace palimpsest

#include "palimpsest/core/vector_targets.h"  // for the next file
#endif
