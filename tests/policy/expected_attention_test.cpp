// Expected Attention and KVzip against their formulas in double precision and plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/policy/random_head.h"

namespace palimpsest::testing {
namespace {

// Mean and covariance of `count` random queries of each head of a group.
struct RandomQueries {
  RandomQueries(int group, int dim, unsigned seed) : group(group), dim(dim) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto d = static_cast<std::size_t>(dim);
    for (int g = 0; g < group; ++g) {
      Matrix queries;
      std::vector<double> middle(d), m(d, 0);
      for (double& x : middle) x = normal(random);
      for (int i = 0; i < 30; ++i) {
        queries.emplace_back();
        for (std::size_t e = 0; e < d; ++e) queries.back().push_back(middle[e] + 0.5 * normal(random));
        for (std::size_t e = 0; e < d; ++e) m[e] += queries.back()[e] / 30;
      }
      Matrix s(d, std::vector<double>(d, 0));
      for (const auto& q : queries)
        for (std::size_t a = 0; a < d; ++a)
          for (std::size_t b = 0; b < d; ++b) s[a][b] += (q[a] - m[a]) * (q[b] - m[b]) / 30;
      for (double& x : m) mean_rows.push_back(static_cast<float>(x)), x = mean_rows.back();
      for (auto& row : s)
        for (double& x : row) covariance_rows.push_back(static_cast<float>(x)), x = covariance_rows.back();
      mean.push_back(m);
      covariance.push_back(s);
    }
  }
  ExpectedQueries view() const {
    return {.mean = {mean_rows.data(), group, dim, dim},
            .covariance = {covariance_rows.data(), group * dim, dim, dim},
            .scale = 1 / std::sqrt(static_cast<float>(dim))};
  }
  int group, dim;
  Matrix mean;
  std::vector<Matrix> covariance;
  std::vector<float> mean_rows, covariance_rows;
};

std::vector<double> golden(const RandomHead& head, const RandomQueries& queries) {
  const std::size_t n = head.k.size(), d = head.k[0].size();
  std::vector<double> score(n, 0);
  for (std::size_t g = 0; g < queries.mean.size(); ++g) {
    std::vector<double> s(n, 0);
    double sum = 0;
    for (std::size_t i = 4; i < n; ++i) {
      double product = 0, square = 0;
      for (std::size_t a = 0; a < d; ++a) {
        product += head.k[i][a] * queries.mean[g][a];
        for (std::size_t b = 0; b < d; ++b) square += head.k[i][a] * queries.covariance[g][a][b] * head.k[i][b];
      }
      s[i] = product / std::sqrt(static_cast<double>(d)) + square / (2 * static_cast<double>(d));
      sum += std::exp(s[i]);
    }
    for (std::size_t i = 4; i < n; ++i) score[i] += std::exp(s[i]) / sum / static_cast<double>(queries.mean.size());
  }
  for (std::size_t i = 4; i < n; ++i) {
    double square = 0;
    for (const double x : head.v[i]) square += x * x;
    score[i] *= std::sqrt(square);
  }
  return score;
}

template <typename T>
std::vector<std::size_t> best(const std::vector<T>& score, std::size_t count) {  // except the first four
  std::vector<std::size_t> order(score.size() - 4);
  std::iota(order.begin(), order.end(), std::size_t{4});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return score[i]; });
  order.resize(std::min(count, order.size()));
  std::ranges::sort(order);
  return order;
}

TEST(ExpectedAttention, ScoreIsThePapers) {
  const auto policy = make_policy("expected-attention");
  unsigned seed = 0;
  for (const int group : {1, 4, 8})
    for (const auto& [tokens, dim] : {std::pair{80, 64}, std::pair{200, 20}, std::pair{5, 8}}) {
      const RandomHead head(tokens, dim, 12, ++seed);
      const RandomQueries queries(group, dim, 100 + seed);
      HeadView view = head.view();
      view.queries = queries.view();
      std::vector<float> score(static_cast<std::size_t>(tokens), 7);
      policy->score(view, score);
      const std::vector<double> expected = golden(head, queries);
      const double max = *std::ranges::max_element(expected);
      for (std::size_t i = 4; i < expected.size(); ++i) EXPECT_NEAR(score[i], expected[i], 1e-5 * max) << i;
      for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(score[i], max);
      for (const std::size_t count : {1, 10, 40}) EXPECT_EQ(best(score, count), best(expected, count));
    }
}

// Empty slots may have any key; the order of slots does not change the scores.
TEST(ExpectedAttention, EmptySlotsDoNotCount) {
  RandomHead head(30, 16, 8, 5);
  const RandomQueries queries(2, 16, 6);
  const std::vector<double> expected = golden(head, queries);
  std::vector<float> keys, values, score(33, 0);
  std::vector<Position> position;
  for (const int i : {-1, 29, 28, 27, 26, 25, -1, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15,
                      14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  -1, 3,  2,  1,  0}) {
    position.push_back(i < 0 ? kNoPosition : i);
    for (int d = 0; d < 16; ++d)
      keys.push_back(i < 0 ? NAN
                           : static_cast<float>(head.k[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)]));
    for (int d = 0; d < 8; ++d)
      values.push_back(i < 0 ? NAN
                             : static_cast<float>(head.v[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)]));
  }
  make_policy("expected-attention")
      ->score({.position = position,
               .keys = {keys.data(), 33, 16, 16},
               .values = {values.data(), 33, 8, 8},
               .queries = queries.view()},
              score);
  for (std::size_t slot = 0; slot < position.size(); ++slot)
    if (position[slot] >= 4) {
      EXPECT_NEAR(score[slot], expected[static_cast<std::size_t>(position[slot])], 1e-5) << position[slot];
    }
}

TEST(KvZip, ScoreIsTheGreatestWeightSoFar) {
  const auto policy = make_policy("kvzip");
  std::vector<float> score(60, 0);
  std::vector<double> max(60, 0);
  for (unsigned part = 0; part < 5; ++part) {
    const RandomHead head(60, 4, 4, 30 + part);
    policy->score(head.view(), score);
    for (std::size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], head.w[i]);
    for (std::size_t i = 0; i < max.size(); ++i) EXPECT_EQ(score[i], static_cast<float>(max[i]));
  }
  EXPECT_TRUE(policy->signals().repeat);
  EXPECT_EQ(policy->signals().reduction(), WeightReduction::kMaxOverAll);
}

}  // namespace
}  // namespace palimpsest::testing
