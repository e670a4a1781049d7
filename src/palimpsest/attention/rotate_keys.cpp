#include "palimpsest/attention/rotate_keys.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "palimpsest/attention/kernels.h"

namespace palimpsest {

namespace {

// Lanes begin .. end - 1 of a tile whose scales belong to several dimensions: through f32.
void rotate_scaled(CacheType type, std::byte* tile, int dim, RopeKind rope, int pairs, int begin, int end,
                   const float* cos_sin) {
  const KeyKernels& keys = kernels_of(type).key;
  const auto elements = static_cast<std::size_t>(dim) * kTile;
  thread_local std::vector<float> memory;  // [dim][16], its rows [16][dim], scratch
  memory.resize(4 * elements);
  float* const wide = memory.data();
  float* const rows = wide + elements;
  keys.widen(tile, dim, wide);
  kernels_of(CacheType::kF32).key.rotate_lanes(reinterpret_cast<std::byte*>(wide), rope, pairs, begin, end, cos_sin);
  std::uint32_t lanes = 0;
  for (int lane = begin; lane < end; ++lane) {
    lanes |= 1u << lane;
    for (int d = 0; d < dim; ++d) rows[lane * dim + d] = wide[d * kTile + lane];
  }
  keys.store(tile, dim, lanes, rows, rows + elements);
}

}  // namespace

void rotate_keys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
                 const float* cos_sin) {
  assert(rope != RopeKind::kNone && first >= 0 && first <= last);
  const auto rotate_lanes = kernels_of(cache.key_type).key.rotate_lanes;
  for (int slot = first; slot < last;) {
    const int offset = slot % cache.page_size, lane = offset % kTile, end = std::min(kTile, lane + last - slot);
    std::byte* const tile = head.page[slot / cache.page_size] + key_tile(cache, offset);
    if (rotate_lanes != nullptr)
      rotate_lanes(tile, rope, rope_dims / 2, lane, end, cos_sin);
    else
      rotate_scaled(cache.key_type, tile, cache.head_dim, rope, rope_dims / 2, lane, end, cos_sin);
    slot += end - lane;
  }
}

}  // namespace palimpsest
