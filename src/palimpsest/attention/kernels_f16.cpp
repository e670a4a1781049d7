// Kernels for keys and values of f16.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_f16.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfF16() {
  return &kFormatKernels<hwy::float16_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfF16);

const FormatKernels& f16_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfF16)();
}

}  // namespace palimpsest
#endif
