// Products in tiles of bytes (AMX), on CPUs with AVX-512 VNNI.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV | HWY_AVX2 | HWY_AVX3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/matmul/tile_kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "palimpsest/matmul/integer_kernels.h"
#include "palimpsest/matmul/panel_type.h"
#if HWY_TARGET == HWY_AVX3_DL && defined(__x86_64__)
#include "palimpsest/matmul/tile_product-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL && defined(__x86_64__)

MultiplyPanels TileProduct(ggml_type type) {
  return tiles_of(type);
}

#else

MultiplyPanels TileProduct(ggml_type) {
  return nullptr;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(TileProduct);

MultiplyPanels tile_product(ggml_type type) {
  return HWY_DYNAMIC_DISPATCH(TileProduct)(type);
}

}  // namespace palimpsest
#endif
