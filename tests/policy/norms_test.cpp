// Policies of keys and values against their papers' formulas, in double precision and plain loops: for each KV head,
// with 1, 4 and 8 query heads per group (which must not change the scores).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {
namespace {

using Matrix = std::vector<std::vector<double>>;

double norm_of(const std::vector<double>& row) {
  double sum = 0;
  for (const double x : row) sum += x * x;
  return std::sqrt(sum);
}

// One KV head of a model with 8 query heads: K and V as computed by its projections.
struct Head {
  Head(int tokens, int dim, int value_dim, unsigned seed) : k(tokens), v(tokens) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> common(dim);  // keys of a head have a common direction
    for (double& x : common) x = normal(random);
    for (int t = 0; t < tokens; ++t) {
      const double size = std::exp(0.3 * normal(random));
      for (int d = 0; d < dim; ++d) k[t].push_back(static_cast<float>(size * (common[d] + normal(random))));
      for (int d = 0; d < value_dim; ++d) v[t].push_back(static_cast<float>(size * normal(random)));
    }
  }
  Matrix k, v;
};

// Rows of an activation: the heads of a token are contiguous.
struct Packed {
  Packed(const std::vector<Head>& heads, bool values) : count(static_cast<int>(heads[0].k.size())) {
    width = static_cast<int>((values ? heads[0].v : heads[0].k)[0].size());
    stride = width * static_cast<int>(heads.size());
    for (int t = 0; t < count; ++t)
      for (const Head& head : heads)
        for (const double x : (values ? head.v : head.k)[t]) data.push_back(static_cast<float>(x));
  }
  Rows of(std::size_t head) const {
    return {data.data() + head * static_cast<std::size_t>(width), count, width, stride};
  }
  std::vector<float> data;
  int count, width, stride;
};

template <typename Formula>
void expect_formula(const char* name, Formula formula) {
  const auto policy = make_policy(name);
  constexpr int kQueryHeads = 8, kTokens = 50;
  for (const int group : {1, 4, 8})
    for (const auto& [dim, value_dim] : {std::pair{64, 64}, std::pair{80, 96}, std::pair{3, 5}}) {
      std::vector<Head> heads;
      for (int h = 0; h < kQueryHeads / group; ++h) heads.emplace_back(kTokens, dim, value_dim, 100 * group + h + dim);
      const Packed keys(heads, false), values(heads, true);
      std::vector<Position> position(kTokens);
      std::iota(position.begin(), position.end(), Position{7});
      for (std::size_t h = 0; h < heads.size(); ++h) {
        std::vector<float> score(kTokens, 0);
        policy->score({.position = position, .keys = keys.of(h), .values = values.of(h), .inserted = kTokens}, score);
        const std::vector<double> golden = formula(heads[h]);
        for (int t = 0; t < kTokens; ++t)
          EXPECT_NEAR(score[t], golden[t], 2e-6 * std::max(1.0, std::abs(golden[t])))
              << name << " " << group << " " << t;
      }
    }
}

TEST(Norms, InverseKeyNorm) {
  expect_formula("knorm", [](const Head& head) {
    std::vector<double> golden;
    for (const auto& key : head.k) golden.push_back(-norm_of(key));
    return golden;
  });
}

TEST(Norms, ValueOverKey) {
  expect_formula("paged-eviction", [](const Head& head) {
    std::vector<double> golden;
    for (std::size_t t = 0; t < head.k.size(); ++t) golden.push_back(norm_of(head.v[t]) / norm_of(head.k[t]));
    return golden;
  });
}

TEST(Norms, MinusCosineToTheMeanOfUnitKeys) {
  expect_formula("keydiff", [](const Head& head) {
    std::vector<double> anchor(head.k[0].size(), 0), golden;
    for (const auto& key : head.k)
      for (std::size_t d = 0; d < key.size(); ++d)
        anchor[d] += key[d] / norm_of(key) / static_cast<double>(head.k.size());
    for (const auto& key : head.k) {
      double product = 0;
      for (std::size_t d = 0; d < key.size(); ++d) product += key[d] * anchor[d];
      golden.push_back(-product / norm_of(key) / norm_of(anchor));
    }
    return golden;
  });
}

// Empty slots may hold anything and do not count.
TEST(Norms, KeyDiffPassesOverEmptySlots) {
  const std::vector<float> keys = {3, 0, NAN, NAN, 0, 2, NAN, NAN, 1, 1};
  const std::vector<Position> position = {4, kNoPosition, 0, kNoPosition, 2};
  std::vector<float> score(5, 0);
  make_policy("keydiff")->score({.position = position, .keys = {keys.data(), 5, 2, 2}}, score);
  EXPECT_NEAR(score[0], -std::sqrt(0.5), 1e-6);
  EXPECT_NEAR(score[2], -std::sqrt(0.5), 1e-6);
  EXPECT_NEAR(score[4], -1, 1e-6);
}

TEST(Norms, NothingIsNoNumber) {
  const std::vector<float> zero(8, 0);
  const Rows rows = {zero.data(), 2, 4, 4};
  const std::vector<Position> position = {0, 1};
  for (const char* name : {"knorm", "paged-eviction", "keydiff"}) {
    std::vector<float> score(2, 0);
    make_policy(name)->score({.position = position, .keys = rows, .values = rows, .inserted = 2}, score);
    EXPECT_FALSE(std::isnan(score[0]) || std::isnan(score[1])) << name;
  }
}

TEST(Norms, WhatTheyAskFor) {
  for (const char* name : {"knorm", "paged-eviction"}) {
    EXPECT_TRUE(make_policy(name)->signals().score_on_insert) << name;
    EXPECT_TRUE(make_policy(name)->signals().keys) << name;
    EXPECT_FALSE(make_policy(name)->signals().positions_only()) << name;
  }
  EXPECT_FALSE(make_policy("knorm")->signals().values);
  EXPECT_TRUE(make_policy("paged-eviction")->signals().values);
  EXPECT_TRUE(make_policy("keydiff")->signals().keys);
  EXPECT_FALSE(make_policy("keydiff")->signals().score_on_insert);
}

}  // namespace
}  // namespace palimpsest::testing
