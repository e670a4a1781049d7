#include "palimpsest/eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace palimpsest::testing {
namespace {

std::vector<float> noise(std::size_t count, double mean, double deviation, unsigned seed, std::size_t repeat = 1) {
  std::mt19937 draw(seed);
  std::vector<float> out;
  while (out.size() < count) {
    double sum = 0;  // of twelve uniform numbers: nearly normal, standard deviation 1
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(draw()) / 4294967296.0;
    out.insert(out.end(), repeat, static_cast<float>(mean + deviation * (sum - 6)));
  }
  out.resize(count);
  return out;
}

// For independent values the interval is the mean +- 1.96 standard errors.
TEST(Bootstrap, IsTheNormalIntervalOfIndependentValues) {
  const std::vector<float> zero(4000, 0.0F), values = noise(4000, 0.1, 1, 7);
  const Interval made = bootstrap(difference_blocks(zero, values, 1));
  EXPECT_EQ(made.blocks, 4000);
  const double error = 1.96 / std::sqrt(4000.0);
  EXPECT_NEAR(made.high - made.mean, error, 0.1 * error);
  EXPECT_NEAR(made.mean - made.low, error, 0.1 * error);
  double mean = 0;
  for (const float each : values) mean += static_cast<double>(each) / 4000;
  EXPECT_NEAR(made.mean, mean, 1e-9);
}

// Values of the formula, as R's prop.test(correct = FALSE) and binom's "wilson" give them.
TEST(Wilson, IsWilsonsInterval) {
  const Interval half = wilson(50, 100), all = wilson(100, 100), none = wilson(0, 20);
  EXPECT_NEAR(half.low, 0.4038, 1e-4);
  EXPECT_NEAR(half.high, 0.5962, 1e-4);
  EXPECT_NEAR(all.low, 0.9630, 1e-4);
  EXPECT_DOUBLE_EQ(all.high, 1);
  EXPECT_DOUBLE_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.1611, 1e-4);
  EXPECT_TRUE(std::isnan(wilson(0, 0).mean));
}

// Repeating each value 16 times adds no information: blocks of 64 give the same interval, single values a narrower one.
TEST(Bootstrap, BlocksSeeThatNeighboursAreAlike) {
  const std::vector<float> zero(16384, 0.0F), values = noise(16384, 0, 1, 3, 16);
  const auto width = [&](long long block) {
    const Interval made = bootstrap(difference_blocks(zero, values, block));
    return made.high - made.low;
  };
  EXPECT_NEAR(width(64), 2 * 1.96 / std::sqrt(1024.0), 0.02);
  EXPECT_NEAR(width(1), width(64) / 4, 0.01);
}

TEST(Bootstrap, PairsTakeAwayWhatBothShare) {
  const auto hard = noise(4096, 3, 2, 1), little = noise(4096, 0.05, 0.1, 2);
  std::vector<float> other(hard);
  for (std::size_t i = 0; i < other.size(); ++i) other[i] += little[i];
  const Interval made = bootstrap(difference_blocks(hard, other, 32));
  EXPECT_GT(made.low, 0.04);
  EXPECT_LT(made.high, 0.06);
}

TEST(Bootstrap, TheLastBlockIsShorterAndWeighsLess) {
  const std::vector<float> a(10, 1.0F), b = {2, 2, 2, 2, 2, 2, 2, 2, 2, 12};
  const auto blocks = difference_blocks(a, b, 4);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[2].weight, 2);
  EXPECT_EQ(blocks[2].sum, 12);
  EXPECT_DOUBLE_EQ(bootstrap(blocks).mean, 2);
}

TEST(Bootstrap, SaysNothingOfFewBlocksAndTheSameTwice) {
  const auto values = noise(70, 0, 1, 5);
  const std::vector<float> zero(70, 0.0F);
  EXPECT_TRUE(std::isnan(bootstrap(difference_blocks(zero, values, 10)).low));
  EXPECT_FALSE(std::isnan(bootstrap(difference_blocks(zero, values, 10)).mean));
  const auto blocks = difference_blocks(zero, values, 5);
  EXPECT_EQ(bootstrap(blocks).low, bootstrap(blocks).low);
  EXPECT_NE(bootstrap(blocks, 2000, 1).low, bootstrap(blocks, 2000, 2).low);
  EXPECT_EQ(bootstrap(difference_blocks(values, values, 5)).high, 0);
}

}  // namespace
}  // namespace palimpsest::testing
