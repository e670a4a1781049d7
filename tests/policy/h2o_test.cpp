// H2O's score is a token's attention weight, averaged over the GQA group and summed over the whole history: against a
// sum in double precision.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace palimpsest::testing
