// PyramidKV's budgets (arXiv 2406.02069, section 4, and its authors' code): a separate implementation, and examples by
// hand.
#include "palimpsest/budget/pyramid.h"

#include <gtest/gtest.h>

#include <numeric>

namespace palimpsest::testing {
namespace {

std::vector<int> golden(int budget, int window, int layers, long long length) {
  const int c = budget - window;
  std::vector<int> out;
  for (int layer = 0; layer < layers; ++layer) {
    if (length >= 0 && (length < budget || length < 2 * c)) {
      out.push_back(budget);
      continue;
    }
    long long min = c / 20, max = 2 * c - c / 20;
    if (length >= 0 && max >= length - window) {
      max = length - window;
      min = 2 * c - max;
    }
    const long long step = (max - min) / (layers - 1);
    out.push_back(static_cast<int>(max - layer * step) + window);
  }
  return out;
}

TEST(Pyramid, IsThePapers) {
  for (const int budget : {64, 128, 256, 1024, 2048})
    for (const int window : {0, 8, 32})
      for (const int layers : {2, 4, 16, 32})
        for (const long long length : {-1LL, 0LL, 100LL, 255LL, 256LL, 300LL, 447LL, 448LL, 500LL, 4096LL, 100000LL})
          EXPECT_EQ(pyramid_budgets(budget, window, layers, length), golden(budget, window, layers, length))
              << budget << " " << window << " " << layers << " " << length;
  EXPECT_EQ(pyramid_budgets(256, 32, 1), std::vector<int>{256});
}

// C = 224: the last layer gets 11, the first 437, a step is 426 / 3 = 142.
TEST(Pyramid, ByHand) {
  EXPECT_EQ(pyramid_budgets(256, 32, 4), (std::vector<int>{469, 327, 185, 43}));
  EXPECT_EQ(pyramid_budgets(256, 32, 4, 460), (std::vector<int>{460, 324, 188, 52}));  // 428 and 20: steps of 136
  EXPECT_EQ(pyramid_budgets(256, 32, 4, 447), std::vector<int>(4, 256));               // fewer than 2 C
}

TEST(Pyramid, TogetherItIsTheBudgetToTheRoundingOfSteps) {
  for (int budget = 40; budget < 600; budget += 7)
    for (const int layers : {2, 3, 4, 16, 32}) {
      const auto budgets = pyramid_budgets(budget, 20, layers, 5000);
      const int all = std::accumulate(budgets.begin(), budgets.end(), 0);
      EXPECT_GE(all, budget * layers);
      EXPECT_LE(all, budget * layers + layers * layers / 2);
    }
}

}  // namespace
}  // namespace palimpsest::testing
