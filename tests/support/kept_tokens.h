// Which tokens a cache keeps, with their scores: to compare two runs whose rounding differs. A token is evicted by
// comparing scores, so two runs may evict different tokens of (nearly) the same score and go on with other texts from
// there.
#pragma once

#include <map>
#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {

// [table] position -> score. Tables of `heads` only.
using KeptTokens = std::vector<std::map<Position, float>>;
KeptTokens kept_tokens(const Cache& cache, const std::vector<int>& heads);

// The number of leading steps in which both runs keep the same tokens: all, if they never part. Parting is allowed only
// between tokens whose scores differ by less than 1e-3 of the spread of a head's scores, either when they were compared
// in one run, or afterwards between the runs; anything else is a failure of the test.
std::size_t steps_with_same_tokens(const std::vector<KeptTokens>& a, const std::vector<KeptTokens>& b);

}  // namespace palimpsest::testing
