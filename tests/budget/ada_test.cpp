// AdaKV's budgets (arXiv 2407.11550, section 3), by sorting all scores of a layer: doubles and plain loops.
#include "palimpsest/budget/ada.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace palimpsest::testing {
namespace {

// Shares before rounding: floor + fraction of the highest scores * (total - floors).
std::vector<double> golden_shares(const std::vector<std::vector<float>>& scores, int total) {
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t h = 0; h < scores.size(); ++h)
    for (const float s : scores[h]) all.emplace_back(-double{s}, h);
  std::ranges::sort(all);
  std::vector<double> wanted(scores.size(), 0);
  for (int i = 0; i < total; ++i) ++wanted[all[static_cast<std::size_t>(i)].second];
  const double heads = static_cast<double>(scores.size()), floor = std::floor(0.2 * std::floor(total / heads));
  for (double& w : wanted) w = floor + w * (total - heads * floor) / total;
  return wanted;
}

std::vector<std::vector<float>> random_scores(int heads, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<float>> scores;
  for (int h = 0; h < heads; ++h) {
    std::exponential_distribution<float> weight(0.2F + 3 * static_cast<float>(random() % 100) / 100);
    std::vector<float> of_head(static_cast<std::size_t>(tokens));
    for (float& s : of_head) s = weight(random);
    scores.push_back(of_head);
  }
  return scores;
}

TEST(Ada, SharesAreThePapersMadeWhole) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const int heads = 1 + static_cast<int>(seed % 8), tokens = 40 + static_cast<int>(seed % 50);
    const auto scores = random_scores(heads, tokens, seed);
    const int total = static_cast<int>(1 + seed * 13 % static_cast<unsigned>(heads * tokens));
    const auto counts = ada_counts(scores, total);
    ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), 0), total);
    const auto golden = golden_shares(scores, total);
    for (std::size_t h = 0; h < counts.size(); ++h) {
      EXPECT_LE(counts[h], tokens);
      EXPECT_GE(counts[h], static_cast<int>(0.2 * (total / heads)));  // the safeguard
      EXPECT_LT(std::abs(counts[h] - golden[h]), 1) << seed << " head " << h;
    }
  }
}

TEST(Ada, ByHand) {
  // The 8 highest: 7 of the first head, 1 of the second. Floors are 0 (0.2 * 4), so the budgets are 7 and 1.
  std::vector<std::vector<float>> scores = {{9, 8, 7, 6, 5, 4, 3, 0, 0, 0}, {2.5F, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  EXPECT_EQ(ada_counts(scores, 8), (std::vector<int>{7, 1}));
  // Of 10: 7 and 3. Floors are 1 each; the other 8 are shared 7 : 3, which is 5.6 and 2.4.
  EXPECT_EQ(ada_counts(scores, 10), (std::vector<int>{7, 3}));
  EXPECT_EQ(ada_counts(scores, 20), (std::vector<int>{10, 10}));
  EXPECT_EQ(ada_counts(scores, 0), (std::vector<int>{0, 0}));
  // At least 2 each; the other 4 are shared 7 : 1, which is 3.5 and 0.5; the half goes to the first.
  EXPECT_EQ(ada_counts(scores, 8, 2), (std::vector<int>{6, 2}));
}

// Equal scores: earlier heads first. If a head has fewer tokens than its share, the others get the rest.
TEST(Ada, TiesAndShortHeads) {
  EXPECT_EQ(ada_counts(std::vector<std::vector<float>>(2, std::vector<float>(10, 1)), 10), (std::vector<int>{9, 1}));
  EXPECT_EQ(ada_counts(std::vector<std::vector<float>>{{5}, std::vector<float>(20, 1)}, 12), (std::vector<int>{1, 11}));
}

// Heads with n, n + 11, n + 22 and the rest of the 176 highest scores: shares are 8 + 9 / 11 of these counts, so the
// first three have equal remainders. The lower heads are rounded up.
TEST(Ada, OfEqualRemaindersTheLowerHeadIsFirst) {
  for (int n = 0; n < 60; ++n) {
    const int high[] = {n, n + 11, n + 22, 176 - 3 * n - 33};
    if (high[3] < 0) break;
    std::vector<std::vector<float>> scores;
    int left = 176;
    std::vector<int> expected;
    for (const int count : high) {
      scores.emplace_back(static_cast<std::size_t>(count), 2.0F);
      scores.back().resize(176, 1.0F);
      left -= expected.emplace_back(8 + count * 9 / 11);
    }
    const int rest = n * 9 % 11, last = high[3] * 9 % 11;
    std::vector<std::size_t> order = {0, 1, 2};
    order.insert(last > rest ? order.begin() : order.end(), 3);
    for (int i = 0; i < left; ++i) ++expected[order[static_cast<std::size_t>(i)]];
    EXPECT_EQ(ada_counts(scores, 176), expected) << n;
  }
}

// NaN is the lowest score at any index.
TEST(Ada, NanIsBelowAllNumbers) {
  const float nan = std::nanf("");
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto scores = random_scores(3, 40, seed);
    std::vector<std::vector<float>> with_nan = scores, with_low = scores;
    for (std::size_t h = 0; h < scores.size(); ++h)
      for (std::size_t t = 0; t < scores[h].size(); ++t)
        if (random() % 3 == 0) with_nan[h][t] = nan, with_low[h][t] = -INFINITY;
    const int total = static_cast<int>(1 + random() % 119);
    EXPECT_EQ(ada_counts(with_nan, total), ada_counts(with_low, total)) << seed;
  }
}

}  // namespace
}  // namespace palimpsest::testing
