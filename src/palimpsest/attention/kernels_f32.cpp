// Kernels for keys and values of f32.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_f32.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfF32() {
  return &kFormatKernels<float>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfF32);

const FormatKernels& f32_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfF32)();
}

}  // namespace palimpsest
#endif
