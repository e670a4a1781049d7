#include "palimpsest/attention/rotate_keys.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/attention/kernels.h"

namespace palimpsest {

void rotate_keys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
                 const float* cos_sin) {
  assert(rope != RopeKind::kNone && first >= 0 && first <= last);
  const auto rotate_lanes = kernels_of(cache.key_type).key.rotate_lanes;
  assert(rotate_lanes != nullptr);  // callers refuse scaled formats: each rotation would requantize whole groups
  for (int slot = first; slot < last;) {
    const int offset = slot % cache.page_size, lane = offset % kTile, end = std::min(kTile, lane + last - slot);
    rotate_lanes(head.page[slot / cache.page_size] + key_tile(cache, offset), rope, rope_dims / 2, lane, end, cos_sin);
    slot += end - lane;
  }
}

}  // namespace palimpsest
