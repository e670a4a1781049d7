// How sure a mean is: percentile bootstrap over blocks that are drawn whole, because neighbours in a text are alike
// (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace palimpsest {

struct TextBlock {
  double sum = 0;     // of the values in it
  double weight = 0;  // how many there are
};

struct Interval {
  double mean = 0;           // of all values
  double low = 0, high = 0;  // 95%; NaN below `kLeastBlocks` blocks
  long long blocks = 0;
};
inline constexpr long long kMinBlocks = 8;

// The same blocks and seed give the same interval on every machine.
Interval bootstrap(std::span<const TextBlock> blocks, int resamples = 2000, std::uint64_t seed = 1);

// b[i] - a[i], `block` neighbours to a block; what is left at the end makes a shorter one. Of equal length.
std::vector<TextBlock> difference_blocks(std::span<const float> a, std::span<const float> b, long long block);

}  // namespace palimpsest
