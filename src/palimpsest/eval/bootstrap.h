// Confidence interval of a mean: percentile bootstrap over blocks, because neighbouring tokens are correlated (Efron
// and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace palimpsest {

struct TextBlock {
  double sum = 0;     // of its values
  double weight = 0;  // number of values
};

struct Interval {
  double mean = 0;           // of all values
  double low = 0, high = 0;  // 95%; NaN below kMinBlocks blocks
  long long blocks = 0;
};
inline constexpr long long kMinBlocks = 8;

// The same blocks and seed give the same interval on every machine.
Interval bootstrap(std::span<const TextBlock> blocks, int resamples = 2000, std::uint64_t seed = 1);

// The 95% interval of a share of `right` of `asked`, for independent questions (Wilson, 1927). NaN for none.
Interval wilson(long long right, long long asked);

// Blocks of `block` successive differences b[i] - a[i]; the last block may be shorter. `a` and `b` have equal length.
std::vector<TextBlock> difference_blocks(std::span<const float> a, std::span<const float> b, long long block);

}  // namespace palimpsest
