// Rotates stored keys of tokens that have moved: by the difference of their ranks after a compaction (delta
// re-rotation), by the difference of their positions after a shift of the text.
#pragma once

#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Call it after each committed drop. With sinks + window all heads have one run of moved slots; with other policies one
// run per closed gap. `frequencies`: [layers]. `workers` may be nullptr.
void rerotate_moved(Cache& cache, std::span<const RopeFrequencies> frequencies, Workers* workers);

// After a shift of the text (Cache::shift): rotates the keys of the tokens that are now at the positions of `range` by
// `by` positions. Each key is rounded to the cache's type once more. No page of theirs may be shared.
void rotate_shifted(Cache& cache, const Hyperparameters& hyper, PositionRange range, Position by, Workers* workers);

}  // namespace palimpsest
