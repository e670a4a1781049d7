// Kernels for keys and values of bf16.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_bf16.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const FormatKernels* OfBF16() {
  return &kFormatKernels<hwy::bfloat16_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfBF16);

const FormatKernels& bf16_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfBF16)();
}

}  // namespace palimpsest
#endif
