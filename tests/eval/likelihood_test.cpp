#include "palimpsest/eval/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest::testing {
namespace {

// The definition, in long double.
double plain_nll(const std::vector<float>& logits, TokenId target) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  return static_cast<double>(std::log(sum) - static_cast<long double>(logits[static_cast<std::size_t>(target)]));
}

std::vector<float> random_logits(std::size_t n, float spread, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (auto& logit : logits) logit = normal(generator);
  return logits;
}

TEST(Likelihood, EqualsTheDefinition) {
  for (const std::size_t n : {2UL, 7UL, 512UL, 128256UL})
    for (const float spread : {0.1F, 3.0F, 30.0F}) {
      const auto logits = random_logits(n, spread, static_cast<unsigned>(n));
      for (const TokenId target : {0, static_cast<TokenId>(n) - 1})
        EXPECT_NEAR(negative_log_likelihood(logits, target), plain_nll(logits, target), 2e-6) << n << " " << spread;
    }
}

TEST(Likelihood, LosesNoSmallTermBesideALargeOne) {
  // 10^5 terms of e^-17 add 4e-3 nats to a token with a probability near one; a float sum would lose all of them.
  std::vector<float> logits(100001, -17.0F);
  logits[0] = 0;
  EXPECT_NEAR(negative_log_likelihood(logits, 0), std::log1p(1e5 * std::exp(-17.0)), 1e-9);
}

TEST(Likelihood, StaysFiniteForLargeLogits) {
  const std::vector<float> logits = {3e4F, 3e4F, -3e4F};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), std::log(2.0), 1e-9);
  EXPECT_NEAR(negative_log_likelihood(logits, 2), 6e4 + std::log(2.0), 1e-6);
}

TEST(Likelihood, RefusesForeignTokensAndBrokenLogits) {
  const std::vector<float> logits = {1, 2, 3};
  EXPECT_THROW(negative_log_likelihood(logits, 3), Error);
  EXPECT_THROW(negative_log_likelihood(logits, -1), Error);
  const std::vector<float> broken = {1, NAN, 3};
  EXPECT_THROW(negative_log_likelihood(broken, 0), Error);
}

TEST(Likelihood, TopTwoAndDivergence) {
  const std::vector<float> a = {1, 5, 4.5F, 5};
  EXPECT_EQ(top_two(a).best, 1);
  EXPECT_FLOAT_EQ(top_two(a).gap(), 0);
  EXPECT_FLOAT_EQ(top_two(std::vector<float>{-3, -1}).gap(), 2);
  EXPECT_NEAR(kl_divergence(a, a), 0, 1e-12);
  // Two outcomes, p = 1/2 against q = e/(1+e).
  const double q = std::exp(1.0) / (1 + std::exp(1.0));
  EXPECT_NEAR(kl_divergence(std::vector<float>{0, 0}, std::vector<float>{1, 0}),
              0.5 * std::log(0.5 / q) + 0.5 * std::log(0.5 / (1 - q)), 1e-6);
}

}  // namespace
}  // namespace palimpsest::testing
