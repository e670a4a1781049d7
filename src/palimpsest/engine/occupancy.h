// How many tokens a session's cache will hold, known beforehand: what `info --cache` prints and the promise of memory
// that a program makes before it starts.
#pragma once

#include "palimpsest/cache/footprint.h"
#include "palimpsest/engine/sequence.h"

namespace palimpsest {

// What a head holds at the most: while the model writes token by token, and while `prompt` tokens go through it in
// chunks (no fewer than the former). `tokens`: how many there will be in all; -1: no end.
struct Occupancies {
  Occupancy writing, reading;
};
Occupancies occupancies(const SessionOptions& options, RopeKind rope, long long prompt, long long tokens);

}  // namespace palimpsest
