// Delta re-rotation: after a compaction, keys that moved turn by the difference of their old and new ranks.
#pragma once

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"

namespace palimpsest {

// Call it after each Cache::apply. Sinks + window move as one block: one row of factors for all layers and heads; with
// other policies a run of slots for each gap that closed. `workers` may be nullptr.
void rerotate_moved(Cache& cache, const RopeFrequencies& frequencies, Workers* workers);

}  // namespace palimpsest
