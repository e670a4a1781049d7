// Delta re-rotation: after a compaction, rotates moved keys by the difference of their old and new ranks.
#pragma once

#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/rope.h"

namespace palimpsest {

// Call it after each committed drop. With sinks + window all heads have one run of moved slots; with other policies one
// run per closed gap. `frequencies`: [layers]. `workers` may be nullptr.
void rerotate_moved(Cache& cache, std::span<const RopeFrequencies> frequencies, Workers* workers);

}  // namespace palimpsest
