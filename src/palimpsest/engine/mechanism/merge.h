// Merging instead of dropping (EMS, arXiv 2412.08521, section 4.2): an evicted token is merged into the most similar
// kept token of its head, its representative, or dropped (EMS's zero class).
//
//   victims             the (gamma - 1) * budget with the highest scores are candidates, the others are dropped
//   representative      among the kept tokens without the newest `recent`: the largest Method::similarity of un-rotated
//                       keys and of values; below tau the victim is dropped, or joins the zero class
//   cluster             key: mean of its tokens' unit keys, weighted by score, with position and norm of the
//                       representative (MergedKey::kUnit: at unit length before); value: mean weighted by score; each
//                       token keeps its own norm (factor)
//   too many            the tokens with the lowest scores among the merged ones and the zero class are dropped
//
// Heads are independent. With Join::kNext shares of a victim's value are added to the tokens after it instead (CaM).
#pragma once

#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/evict/evictor.h"

namespace palimpsest {

// Drops the tokens merged into the plan's tokens. Call it before tokens outside a window are dropped.
void drop_merged(Cache& cache, const Victims& plan);
// Call it before the plan's drop is committed; scores must be up to date. `frequencies`: [layers], the RoPE tables;
// empty: keys are stored un-rotated. Makes the cache's pages exclusive. Checks `interrupt` (nullptr: none) before each
// victim; after an exception the cache can only be cleared.
void merge_victims(Cache& cache, const Victims& plan, const Method& method, const Evictor& evictor,
                   std::span<const RopeFrequencies> frequencies, Workers* workers,
                   const Interrupt* interrupt = nullptr);

}  // namespace palimpsest
