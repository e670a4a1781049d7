// Running mean and covariance of each query head's queries, and the future queries that they predict (Expected
// Attention, arXiv 2510.00636, section 3). And the last queries themselves, for mechanism match. Both are stored in the
// cache (Cache::head_statistics), of un-rotated queries, per query head:
//
//   statistics   [count][mean: head_dim][covariance: head_dim x head_dim]
//   references   [n][tag][query: head_dim]   the query at position p is in row p mod n. The tag names its position: a
//   row
//                                            that was never written, or whose token was rewound, is not read.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/core/types.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// A head's statistics: sized by its own query group, which may be smaller than another layer's.
std::span<float> query_statistics(Cache& cache, int head);

inline int query_floats(int head_dim) {  // per query head
  return static_cast<int>(QueryMoments::floats(head_dim));
}

// Adds queries at consecutive positions from `first`, except the first ExpectedQueries::kLeftOut positions. The count
// saturates at 2^24: later queries have weight 2^-24.
void add_queries(Rows queries, Position first, std::span<float> statistics);

// The mean rotation over ExpectedQueries::kAhead positions from `next`, as RopeFrequencies::row; empty: no RoPE.
std::vector<float> mean_rotation(const RopeFrequencies& frequencies, Position next);

// Rotates the statistics of a query group's heads. The result's rows point into `memory`.
ExpectedQueries expected_queries(std::span<const float> statistics, int heads, int head_dim, float scale, RopeKind kind,
                                 std::span<const float> cos_sin, std::vector<float>& memory);

// The rings of references of a head's query group, one after the other; `of`: the plan's.
std::span<float> reference_queries(Cache& cache, int head, const ReferenceQueries& of);
// Stores queries at consecutive positions from `first` in one query head's ring.
void keep_references(Rows queries, Position first, std::span<float> ring);
// The query at `position`; empty: the ring does not have it.
std::span<const float> reference_at(std::span<const float> ring, int head_dim, Position position);

// Rotates a row's pairs in place; element d is row[d * stride]. `cos_sin`: RopeFrequencies::row.
void rotate_row(float* row, std::size_t stride, RopeKind kind, std::span<const float> cos_sin);

}  // namespace palimpsest
