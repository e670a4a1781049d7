// Transposes keys into a K tile: rows of tokens become columns, a vector at a time.

#if defined(PALIMPSEST_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_TRANSPOSE_INL_H_
#undef PALIMPSEST_ATTENTION_TRANSPOSE_INL_H_
#else
#define PALIMPSEST_ATTENTION_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include "palimpsest/cache/view.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// rows [kTile][head_dim]: the key of lane l is row l; writes only the lanes in `lanes` (bit l). head_dim is a multiple
// of kTile; `scratch` is as large as `rows`. Interleaves rows k, k + 4, k + 8, k + 12, then the four results, which
// transposes:
//
//   part k    [d][q]     = rows[k + 4q][d]
//   tile      [d][4q + k] = part k [d][q]
template <class T>
HWY_NOINLINE void transpose_keys(const T* rows, std::uint32_t lanes, int head_dim, T* tile, T* scratch) {
  using U = hwy::MakeUnsigned<T>;
  const hn::CappedTag<U, kTile> d;
  const int step = static_cast<int>(hn::Lanes(d)), part = 4 * head_dim;
  const U* const row = reinterpret_cast<const U*>(rows);
  U* const parts = reinterpret_cast<U*>(scratch);
  U* const out = reinterpret_cast<U*>(tile);
  for (int k = 0; k < 4; ++k)
    for (int i = 0; i < head_dim; i += step)
      hn::StoreInterleaved4(hn::LoadU(d, row + k * head_dim + i), hn::LoadU(d, row + (k + 4) * head_dim + i),
                            hn::LoadU(d, row + (k + 8) * head_dim + i), hn::LoadU(d, row + (k + 12) * head_dim + i), d,
                            parts + k * part + 4 * i);
  const bool whole = lanes == (1u << kTile) - 1;
  HWY_ALIGN U mask[kTile];
  for (int lane = 0; lane < kTile; ++lane) mask[lane] = static_cast<U>(lanes >> lane & 1 ? ~U{0} : 0);
  HWY_ALIGN U interleaved[4 * kTile];
  for (int i = 0; i < part; i += step) {  // 4 * step elements: step / 4 rows of the tile
    const auto a = hn::LoadU(d, parts + i), b = hn::LoadU(d, parts + part + i), c = hn::LoadU(d, parts + 2 * part + i),
               e = hn::LoadU(d, parts + 3 * part + i);
    if (whole) {
      hn::StoreInterleaved4(a, b, c, e, d, out + 4 * i);
      continue;
    }
    hn::StoreInterleaved4(a, b, c, e, d, interleaved);
    for (int n = 0; n < 4 * step; n += step)
      hn::BlendedStore(hn::Load(d, interleaved + n), hn::MaskFromVec(hn::Load(d, mask + n % kTile)), d,
                       out + 4 * i + n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
