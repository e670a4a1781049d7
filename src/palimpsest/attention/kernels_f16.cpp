// Kernels for caches of f16.
#include "palimpsest/attention/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/attention/kernels_f16.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "palimpsest/attention/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

const Kernels* OfF16() {
  return &kKernels<hwy::float16_t>;
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(OfF16);

const Kernels& f16_kernels() {
  return *HWY_DYNAMIC_DISPATCH(OfF16)();
}

}  // namespace palimpsest
#endif
