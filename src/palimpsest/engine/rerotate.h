// Delta re-rotation: after a compaction, keys that moved rotate by the difference of their old and new ranks.
#pragma once

#include <span>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"

namespace palimpsest {

// Call it after each Cache::apply. Sinks + window move as one block: one row of factors for all heads; with other
// policies a run of slots for each gap that closed. `frequencies`: [layers]. `workers` may be nullptr.
void rerotate_moved(Cache& cache, std::span<const RopeFrequencies> frequencies, Workers* workers);

}  // namespace palimpsest
