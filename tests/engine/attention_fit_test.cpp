// Fitting biases and values (engine/mechanism/attention_fit.h) against plain loops in double precision.
#include "palimpsest/engine/mechanism/attention_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace palimpsest::testing {
namespace {

using Matrix = std::vector<std::vector<double>>;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Queries, tokens (the kept ones first) and values. Some queries do not see all tokens; some have a learned sink.
struct Problem {
  int queries, tokens, kept, width;
  std::vector<float> scores, values, sinks;

  Problem(int queries, int tokens, int kept, unsigned seed, bool masks, bool sink)
      : queries(queries), tokens(tokens), kept(kept), width(6) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int i = 0; i < queries * tokens; ++i)
      scores.push_back(masks && i % tokens != 0 && random() % 7 == 0 ? kHidden : 2 * normal(random));
    for (int i = 0; i < tokens * width; ++i) values.push_back(normal(random));
    for (int i = 0; i < queries; ++i) sinks.push_back(sink ? normal(random) : kHidden);
  }
  Rows rows() const { return {values.data(), tokens, width, width}; }
  bool solve(AttentionFit& fit, const FitOptions& options = {}) const {
    fit.begin(rows(), kept);
    for (int i = 0; i < queries; ++i) {
      std::vector<float> row(scores.begin() + i * tokens, scores.begin() + (i + 1) * tokens);
      fit.add(row, sinks[static_cast<std::size_t>(i)]);
    }
    return fit.solve(options);
  }
  double weight(int i, int j) const { return std::exp(double{scores[static_cast<std::size_t>(i * tokens + j)]}); }
  double denominator(int i, int count, std::span<const float> factor) const {
    double sum = std::exp(double{sinks[static_cast<std::size_t>(i)]});
    for (int j = 0; j < count; ++j) sum += weight(i, j) * (factor.empty() ? 1 : factor[static_cast<std::size_t>(j)]);
    return sum;
  }
  // Outputs over the first `count` tokens.
  Matrix outputs(int count, std::span<const float> factor, const Rows& v) const {
    Matrix out(static_cast<std::size_t>(queries), std::vector<double>(static_cast<std::size_t>(width), 0));
    for (int i = 0; i < queries; ++i)
      for (int j = 0; j < count; ++j)
        for (int d = 0; d < width; ++d)
          out[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)] +=
              weight(i, j) * (factor.empty() ? 1 : factor[static_cast<std::size_t>(j)]) /
              denominator(i, count, factor) * v[j][static_cast<std::size_t>(d)];
    return out;
  }
  double error(std::span<const float> factor, const Rows& v) const {
    const Matrix whole = outputs(tokens, {}, rows()), some = outputs(kept, factor, v);
    double sum = 0;
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (std::size_t d = 0; d < whole[i].size(); ++d) sum += std::pow(whole[i][d] - some[i][d], 2);
    return sum;
  }
};

// The errors it reports are those of its factors and values, and fitting is never worse than dropping.
TEST(AttentionFit, IsNeverWorseThanDropping) {
  AttentionFit fit;  // one for all: nothing of one head remains for the next
  for (unsigned seed = 0; seed < 120; ++seed) {
    const int tokens = 20 + static_cast<int>(seed % 40), kept = 1 + static_cast<int>(seed * 7 % 20);
    const Problem problem(1 + static_cast<int>(seed % 31), tokens, kept, seed, seed % 2 == 1, seed % 3 == 1);
    const double dropped = problem.error({}, problem.rows());
    ASSERT_TRUE(problem.solve(fit)) << seed;
    EXPECT_NEAR(fit.dropped_error(), dropped, 1e-4 * dropped) << seed;
    const double error = problem.error(fit.factors(), fit.values());
    EXPECT_NEAR(fit.error(), error, 1e-3 * dropped) << seed;
    EXPECT_LE(error, dropped * (1 + 1e-4)) << seed;
    for (const float factor : fit.factors()) {
      EXPECT_GE(factor, AttentionFit::kMinFactor);
      EXPECT_LE(factor, AttentionFit::kMaxFactor);
    }
  }
}

TEST(AttentionFit, ChangesNothingIfAllTokensAreKept) {
  AttentionFit fit;
  for (const bool sink : {false, true}) {
    const Problem problem(9, 30, 30, 5, true, sink);
    ASSERT_TRUE(problem.solve(fit));
    for (const float factor : fit.factors()) EXPECT_NEAR(factor, 1, 1e-5);
    for (int j = 0; j < 30; ++j)
      for (int d = 0; d < problem.width; ++d)
        EXPECT_NEAR(fit.values()[j][static_cast<std::size_t>(d)], problem.rows()[j][static_cast<std::size_t>(d)], 1e-5);
  }
}

// Fewer queries than kept tokens: without a ridge the outputs are those of all tokens.
TEST(AttentionFit, FitsFewQueriesExactly) {
  AttentionFit fit;
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Problem problem(8, 60, 24, seed, false, seed % 2 == 1);
    ASSERT_TRUE(problem.solve(fit, {.bias_ridge = 1e-6, .value_ridge = 0}));
    EXPECT_LT(problem.error(fit.factors(), fit.values()), 1e-3 * problem.error({}, problem.rows())) << seed;
  }
}

// Biases: the sum of weights over the kept tokens is that over all.
TEST(AttentionFit, FactorsKeepTheDenominators) {
  AttentionFit fit;
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Problem problem(8, 60, 40, seed, false, false);
    ASSERT_TRUE(problem.solve(fit, {.bias_ridge = 1e-4}));
    double before = 0, after = 0;
    for (int i = 0; i < problem.queries; ++i) {
      const double whole = problem.denominator(i, problem.tokens, {});
      before += std::pow(1 - problem.denominator(i, problem.kept, {}) / whole, 2);
      after += std::pow(1 - problem.denominator(i, problem.kept, fit.factors()) / whole, 2);
    }
    EXPECT_LT(after, 0.01 * before) << seed;
  }
}

// No factor within its bounds makes the sum of squares smaller; nor do other values, with these factors.
TEST(AttentionFit, IsTheMinimum) {
  AttentionFit fit;
  for (unsigned seed = 0; seed < 8; ++seed) {
    const FitOptions options{.bias_ridge = 0.05, .value_ridge = 0.02};
    const Problem problem(seed % 2 == 0 ? 12 : 30, 50, 15, seed, seed % 3 == 0, false);
    ASSERT_TRUE(problem.solve(fit, options));
    std::vector<double> w(fit.factors().begin(), fit.factors().end());
    const auto share = [&](int i, int j) { return problem.weight(i, j) / problem.denominator(i, problem.tokens, {}); };
    double mean = 0;
    for (int i = 0; i < problem.queries; ++i)
      for (int j = 0; j < problem.kept; ++j) mean += std::pow(share(i, j), 2) / problem.kept;
    const auto of_factors = [&] {
      double sum = 0;
      for (int i = 0; i < problem.queries; ++i) {
        double missing = 1;
        for (int j = 0; j < problem.kept; ++j) missing -= share(i, j) * w[static_cast<std::size_t>(j)];
        sum += missing * missing;
      }
      for (const double x : w) sum += options.bias_ridge * mean * (x - 1) * (x - 1);
      return sum;
    };
    const double least = of_factors();
    for (double& x : w)
      for (const double step : {-0.02, 0.02}) {
        const double before =
            std::exchange(x, std::clamp(x + step, AttentionFit::kMinFactor, AttentionFit::kMaxFactor));
        EXPECT_GE(of_factors(), least * (1 - 1e-5)) << seed;
        x = before;
      }

    double trace = 0;  // of A A'
    for (int i = 0; i < problem.queries; ++i)
      for (int j = 0; j < problem.kept; ++j)
        trace += std::pow(problem.weight(i, j) * fit.factors()[static_cast<std::size_t>(j)] /
                              problem.denominator(i, problem.kept, fit.factors()),
                          2);
    std::vector<float> v(fit.values().data, fit.values().data + problem.kept * problem.width);
    const auto of_values = [&] {
      double sum = problem.error(fit.factors(), {v.data(), problem.kept, problem.width, problem.width});
      for (std::size_t i = 0; i < v.size(); ++i)
        sum += options.value_ridge * trace / problem.queries * std::pow(double{v[i]} - problem.values[i], 2);
      return sum;
    };
    const double lowest = of_values();
    for (std::size_t i = 0; i < v.size(); i += 5)
      for (const float step : {-0.05F, 0.05F}) {
        const float before = std::exchange(v[i], v[i] + step);
        EXPECT_GE(of_values(), lowest * (1 - 1e-5)) << seed;
        v[i] = before;
      }
  }
}

// Kept tokens whose share of all tokens is below every float, or nearly: their weights among themselves remain.
TEST(AttentionFit, KeptTokensMayHaveTinyWeights) {
  AttentionFit fit;
  for (const float lead : {80.F, 88.F, 95.F, 103.F, 200.F, 1000.F}) {
    Problem problem(8, 20, 15, 3, false, false);
    for (int i = 0; i < problem.queries; ++i) problem.scores[static_cast<std::size_t>(i * 20 + 17)] += lead;
    ASSERT_TRUE(problem.solve(fit, {.bias_ridge = 10, .value_ridge = 1})) << lead;
    EXPECT_LT(fit.error(), 0.9 * fit.dropped_error()) << lead;
    EXPECT_TRUE(std::isfinite(fit.dropped_error()) && fit.dropped_error() > 0) << lead;
    for (const float factor : fit.factors()) EXPECT_TRUE(std::isfinite(factor)) << lead;
  }
}

// Queries that see nothing do not count; without any other there is no fit.
TEST(AttentionFit, NeedsAQuery) {
  AttentionFit fit;
  const std::vector<float> values(12, 1);
  fit.begin({values.data(), 4, 3, 3}, 2);
  EXPECT_FALSE(fit.solve({}));
  std::vector<float> scores(4, kHidden);
  fit.add(scores, kHidden);
  EXPECT_EQ(fit.queries(), 0);
  EXPECT_FALSE(fit.solve({}));
  fit.begin({values.data(), 4, 3, 3}, 2);
  scores = {kHidden, kHidden, 1, 1};  // sees no kept token: its output cannot be had
  fit.add(scores, kHidden);
  EXPECT_FALSE(fit.solve({}));
}

}  // namespace
}  // namespace palimpsest::testing
