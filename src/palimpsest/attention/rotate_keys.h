// Rotates keys where they lie in their pages: delta re-rotation after a compaction (Lazy Pruning, seed 001, equation
// 9).
#pragma once

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// The keys in slots first .. last - 1 of a head rotate by one row of cosines and sines (RopeFrequencies::row of the
// difference of positions, magnitude taken out). Rounded to the cache's type again: a key that is rotated in every step
// gathers an error, which is why the other ways exist.
void rotate_keys(const LayerView& cache, const HeadPages& head, RopeKind rope, int rope_dims, int first, int last,
                 const float* cos_sin);

}  // namespace palimpsest
