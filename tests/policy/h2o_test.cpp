// H2O's score is a token's attention weight, averaged over the GQA group and summed over the whole history: against a
// sum in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {
namespace {

TEST(H2o, ScoresAreTheSumOverAllQueriesOfTheGroupsMeanWeight) {
  std::mt19937 random(1);
  std::exponential_distribution<double> weight(1);
  const auto policy = make_policy("h2o");
  EXPECT_TRUE(policy->signals().attention_sum && !policy->signals().attention_window);
  EXPECT_FALSE(policy->signals().positions_only());
  for (const std::size_t group : {1u, 4u, 8u}) {
    constexpr std::size_t kTokens = 50, kSteps = 300;
    std::vector<Position> position(kTokens);
    std::vector<float> score(kTokens, 0);
    std::vector<double> expected(kTokens, 0);
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::vector<double> mean(kTokens, 0);
      for (std::size_t g = 0; g < group; ++g) {  // each query head's weights sum to one
        std::vector<double> w(kTokens);
        double sum = 0;
        for (auto& x : w) sum += x = weight(random);
        for (std::size_t i = 0; i < kTokens; ++i) mean[i] += w[i] / sum / static_cast<double>(group);
      }
      const std::vector<float> attention(mean.begin(), mean.end());
      policy->score({.position = position, .attention = attention, .inserted = 1}, score);
      for (std::size_t i = 0; i < kTokens; ++i) expected[i] += mean[i];
    }
    for (std::size_t i = 0; i < kTokens; ++i) EXPECT_NEAR(score[i], expected[i], 1e-5 * expected[i]) << group;
  }
}

// Policy peak: the largest weight of all steps so far; a step's is the largest of its queries and group.
TEST(Peak, ScoresAreTheLargestWeightSoFar) {
  std::mt19937 random(3);
  std::exponential_distribution<float> weight(1);
  const auto policy = make_policy("peak");
  EXPECT_TRUE(policy->signals().attention_max && !policy->signals().attention_window);
  constexpr std::size_t kTokens = 40;
  std::vector<Position> position(kTokens);
  std::vector<float> score(kTokens, 0), expected(kTokens, 0);
  for (int step = 0; step < 50; ++step) {
    std::vector<float> attention(kTokens);
    for (float& x : attention) x = weight(random);
    policy->score({.position = position, .attention = attention, .inserted = 3}, score);
    for (std::size_t i = 0; i < kTokens; ++i) expected[i] = std::max(expected[i], attention[i]);
    EXPECT_EQ(score, expected);
  }
}

// Policy a2sf: each query's weights times 0.99 to the number of queries since, in steps of any size.
TEST(A2sf, WeightsFade) {
  std::mt19937 random(4);
  std::exponential_distribution<float> weight(1);
  const auto policy = make_policy("a2sf");
  constexpr std::size_t kTokens = 40;
  const int sizes[] = {20, 1, 1, 7, 1, 64, 1};
  std::vector<std::vector<float>> all;
  std::vector<Position> position(kTokens);
  std::vector<float> score(kTokens, 0);
  for (const int size : sizes) {
    std::vector<float> attention(kTokens);
    for (float& x : attention) x = weight(random);
    policy->score({.position = position, .attention = attention, .inserted = size}, score);
    all.push_back(attention);
  }
  for (std::size_t i = 0; i < kTokens; ++i) {
    double expected = 0;
    for (std::size_t step = 0; step < all.size(); ++step) {
      int since = 0;
      for (std::size_t later = step + 1; later < all.size(); ++later) since += sizes[later];
      expected += std::pow(0.99, since) * double{all[step][i]};
    }
    EXPECT_NEAR(double{score[i]}, expected, 1e-5 * expected);
  }
}

// Policy observed-attention: the same sum over the number of queries that saw the token, in steps of any size and with
// empty slots.
TEST(ObservedAttention, ScoresAreTheMeanOverTheQueriesThatSawTheToken) {
  std::mt19937 random(2);
  std::exponential_distribution<double> weight(1);
  const auto policy = make_policy("observed-attention");
  constexpr std::size_t kTokens = 60;
  std::vector<Position> position(kTokens, kNoPosition);
  std::vector<float> score(kTokens, 0);
  std::vector<double> sum(kTokens, 0);
  std::size_t next = 0;
  for (const std::size_t inserted : {10u, 1u, 1u, 20u, 3u, 1u, 10u}) {
    std::vector<double> step(kTokens, 0);
    for (std::size_t query = next; query < next + inserted; ++query) {
      position[query] = static_cast<Position>(query);
      for (std::size_t i = 0; i <= query; ++i) step[i] += weight(random);
    }
    next += inserted;
    if (next == 12) position[5] = kNoPosition;  // evicted
    const std::vector<float> attention(step.begin(), step.end());
    policy->score({.position = position, .attention = attention, .inserted = static_cast<int>(inserted)}, score);
    for (std::size_t i = 0; i < next; ++i) {
      sum[i] += step[i];
      if (position[i] == kNoPosition) continue;
      EXPECT_NEAR(score[i], sum[i] / static_cast<double>(next - i), 1e-5 * sum[i]) << next << " " << i;
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
