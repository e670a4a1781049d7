// How many tokens a session's cache will hold, known beforehand: what `info --cache` prints and the promise of memory
// that a program makes before it starts.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/footprint.h"
#include "palimpsest/engine/sequence.h"

namespace palimpsest {

// What each head holds at the most (one entry where all hold as much): while the model writes token by token, and while
// `prompt` tokens go through it in chunks (no fewer than the former; heads of other budgets hold the most at other
// times). `tokens`: how many there will be in all; -1: no end. `budgets`: see head_budgets.
struct Occupancies {
  std::vector<Occupancy> writing, reading;
};
Occupancies occupancies(const SessionOptions& options, PositionKind kind, long long prompt, long long tokens,
                        std::span<const int> budgets = {});

}  // namespace palimpsest
