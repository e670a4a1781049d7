// Rotates stored keys in place: delta re-rotation after a compaction (Lazy Pruning, equation 9), a shift of the text.
#pragma once

#include "palimpsest/cache/view.h"
#include "palimpsest/core/rope.h"

namespace palimpsest {

// Rotates the keys in slots first .. last - 1 of a head by one row of cosines and sines (RopeFrequencies::row of the
// difference of positions, without the magnitude). Each call rounds to the cache's type again, so a key that is rotated
// in every step accumulates error; kOnRead and kMaterialized do not.
void rotate_keys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
                 const float* cos_sin);

}  // namespace palimpsest
