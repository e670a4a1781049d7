// What a model's queries are like, one after the other: mean and covariance of each query head, and what they say of
// the queries to come (Expected Attention, arXiv 2510.00636, section 3). They lie in the cache (Cache::of_head).
//
//   of a query head: [count][mean: head_dim][covariance: head_dim x head_dim], of un-rotated queries
#pragma once

#include <span>
#include <vector>

#include "palimpsest/attention/rope.h"
#include "palimpsest/core/types.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

inline int query_floats(int head_dim) {  // of a query head
  return static_cast<int>(QueryMoments::floats(head_dim));
}

// Queries at positions from `first` on are added; those of the first ExpectedQueries::kLeftOut positions are not.
// After 2^24 of them new ones weigh 2^-24.
void add_queries(Rows queries, Position first, std::span<float> statistics);

// The mean rotation over the ExpectedQueries::kAhead positions from `next` on, as RopeFrequencies::row; empty: nothing
// rotates.
std::vector<float> mean_rotation(const RopeFrequencies& frequencies, Position next);

// Statistics of the heads of a group, rotated. The result's rows lie in `memory`.
ExpectedQueries expected_queries(std::span<const float> statistics, int heads, int head_dim, float scale, RopeKind kind,
                                 std::span<const float> cos_sin, std::vector<float>& memory);

}  // namespace palimpsest
