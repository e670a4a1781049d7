// Every token has the same probability of eviction, independently in each decision; equal histories give equal
// decisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {
namespace {

TEST(RandomPolicy, IsFairAndRepeatable) {
  constexpr std::size_t kTokens = 32;
  constexpr int kDecisions = 32000;
  const auto policy = make_policy("random");
  std::vector<Position> position(kTokens);
  std::iota(position.begin(), position.end(), Position{1000});
  std::vector<float> score(kTokens, 0), again(kTokens, 0);
  std::vector<int> left(kTokens, 0);
  int same_as_before = 0;
  std::ptrdiff_t before = -1;
  for (int i = 0; i < kDecisions; ++i) {
    position.back() = 2000 + i;  // a new token in every step
    policy->score({.position = position}, score);
    policy->score({.position = position}, again);
    ASSERT_EQ(score, again);
    const auto victim = std::ranges::min_element(score) - score.begin();
    ++left[static_cast<std::size_t>(victim)];
    same_as_before += victim == before;
    before = victim;
  }
  const double expected = kDecisions / double{kTokens};
  double chi_square = 0;
  for (const int count : left) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 65);  // 31 degrees of freedom: exceeded once in 3,000
  EXPECT_NEAR(same_as_before, expected, 5 * std::sqrt(expected));
}

}  // namespace
}  // namespace palimpsest::testing
