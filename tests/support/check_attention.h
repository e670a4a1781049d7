// The fast path of attention against the double-precision reference.
#pragma once

#include <vector>

#include "palimpsest/attention/cpu.h"
#include "tests/support/random_cache.h"

namespace palimpsest::testing {

void run_cpu(const LayerStep& step, AttentionScratch& scratch, int threads);
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);
double max_magnitude(const std::vector<float>& x);
double max_distance(const std::vector<float>& a, const std::vector<float>& b);  // infinity if one is NaN
// sqrt(sum of squared differences / sum of squares of b)
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

// One random step with 5, 1 and 2 threads: results with the same bits, stored keys and values within one unit in the
// last place of the reference's, output and weights within 4e-6 of it.
void check_attention(const RandomCacheOptions& options);

// The same for a step of drafts; and each draft alone gets the same bits.
void check_drafts(RandomCacheOptions options);

}  // namespace palimpsest::testing
