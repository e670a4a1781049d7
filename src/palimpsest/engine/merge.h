// Merging instead of dropping (EMS, arXiv 2412.08521, section 4.2): what a head gives up joins the kept token that is
// most like it, or is gone (the zero class).
//
//   victims by score    the best (gamma - 1) * budget are to be merged, the others are gone
//   target              of the kept tokens but the newest `recent`: the largest cos(k, k') * cos(v, v') of un-rotated
//                       keys; below tau there is none
//   a class             key: the mean of its tokens' unit keys, weighted by score, at the place and with the norm of
//                       its own token; value: the mean of values, weighted likewise; each token keeps its norm
//   too many            the merged tokens of the lowest scores leave
//
// Heads are independent of each other. With Join::kNext a victim's value goes to its neighbours instead (CaM).
#pragma once

#include <span>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/evict/evictor.h"

namespace palimpsest {

// Before tokens outside a window are dropped: those merged into them, which nobody sees either, are gone.
void drop_merged(Cache& cache, const Plan& plan);
// Before cache.apply(plan). `frequencies`: of each layer's rotary positions; empty: keys are stored un-rotated. The
// cache has pages of its own, and scores of this moment.
void merge_victims(Cache& cache, const Plan& plan, const Method& method, const Evictor& evictor,
                   std::span<const RopeFrequencies> frequencies, Workers* workers);

}  // namespace palimpsest
