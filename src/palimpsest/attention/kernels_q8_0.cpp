// Kernels for keys and values of q8_0.
#include "palimpsest/attention/kernels.h"

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
#endif
