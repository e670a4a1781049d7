// cur, capkv, leverage, chunkkv and random per head against their formulas in double precision and plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/core/rope.h"
#include "tests/policy/random_head.h"

namespace palimpsest::testing {
namespace {

double square(const std::vector<double>& row) {
  double sum = 0;
  for (const double x : row) sum += x * x;
  return sum;
}

// Gauss-Jordan elimination with pivots.
Matrix inverse_of(Matrix a) {
  const std::size_t n = a.size();
  Matrix inverse(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i) inverse[i][i] = 1;
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]);
    std::swap(inverse[c], inverse[pivot]);
    const double by = a[c][c];
    for (std::size_t d = 0; d < n; ++d) a[c][d] /= by, inverse[c][d] /= by;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = a[r][c];
      for (std::size_t d = 0; d < n; ++d) a[r][d] -= factor * a[c][d], inverse[r][d] -= factor * inverse[c][d];
    }
  }
  return inverse;
}

double form(const Matrix& matrix, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t a = 0; a < x.size(); ++a)
    for (std::size_t b = 0; b < x.size(); ++b) sum += x[a] * matrix[a][b] * x[b];
  return sum;
}

std::vector<float> scores(const char* policy, const HeadView& view, const PolicyOptions& options = {}) {
  const auto made = make_policy(policy, options);
  std::vector<float> score(view.position.size(), 0);
  made->score(view, score);
  return score;
}

TEST(KvpressPolicies, CurIsASharedNorm) {
  for (const int tokens : {1, 16, 40}) {
    const RandomHead head(tokens, 12, 20, static_cast<unsigned>(tokens));
    const auto score = scores("cur", head.view());
    const std::size_t n = head.k.size();
    for (std::size_t i = 0; i < n; ++i) {
      double keys = 0, values = 0;
      for (std::size_t j = i / 16 * 16; j < std::min(n, i / 16 * 16 + 16); ++j)
        keys += square(head.k[j]), values += square(head.v[j]);
      EXPECT_NEAR(score[i], square(head.k[i]) / keys * square(head.v[i]) / values, 1e-5) << i << " of " << tokens;
    }
  }
  const RandomHead head(40, 12, 20, 3);
  const auto all = scores("cur", head.view(), {{"part", "1000"}});
  double keys = 0, values = 0;
  for (std::size_t i = 0; i < 40; ++i) keys += square(head.k[i]), values += square(head.v[i]);
  EXPECT_NEAR(all[7], square(head.k[7]) / keys * square(head.v[7]) / values, 1e-6);
}

TEST(KvpressPolicies, CapKvIsALeverageUnderExpectedQueries) {
  for (const int group : {1, 3}) {
    const RandomHead head(50, 8, 6, static_cast<unsigned>(group)), means(group, 8, 1, 9);
    HeadView view = head.view();
    view.queries.mean = {means.keys.data(), group, 8, 8};
    const auto score = scores("capkv", view);
    const std::size_t n = head.k.size();
    std::vector<double> wanted(n, 0);
    for (const auto& mean : means.k) {
      std::vector<double> w(n, 0);
      double max = -INFINITY;
      for (std::size_t i = 4; i < n; ++i) {
        double product = 0;
        for (std::size_t d = 0; d < 8; ++d) product += head.k[i][d] * mean[d];
        w[i] = 5 * product / std::sqrt(square(head.k[i]) * square(mean));
        max = std::max(max, w[i]);
      }
      Matrix capacity(6, std::vector<double>(6, 0));
      for (std::size_t a = 0; a < 6; ++a) capacity[a][a] = 1;
      for (std::size_t i = 4; i < n; ++i) {
        w[i] = std::exp(w[i] - max);
        for (std::size_t a = 0; a < 6; ++a)
          for (std::size_t b = 0; b < 6; ++b) capacity[a][b] += (w[i] + 1e-6) * head.v[i][a] * head.v[i][b];
      }
      const Matrix inverse = inverse_of(capacity);
      for (std::size_t i = 4; i < n; ++i) wanted[i] += w[i] * form(inverse, head.v[i]);
    }
    for (std::size_t i = 4; i < n; ++i) EXPECT_NEAR(score[i], wanted[i], 1e-4 * (1 + wanted[i])) << i;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(score[i], *std::max_element(wanted.begin(), wanted.end()));
  }
}

TEST(KvpressPolicies, LeverageOfKeysAsBeforeTheirRotation) {
  for (const RopeKind kind : {RopeKind::kNone, RopeKind::kHalves, RopeKind::kPairs}) {
    constexpr int kDim = 8;
    RandomHead head(60, kDim, 4, 5);
    RopeOptions options;
    options.kind = kind;
    options.dims = kDim;
    const RopeFrequencies frequencies(options);
    std::vector<float> row(kDim);
    for (std::size_t i = 0; kind != RopeKind::kNone && i < head.k.size(); ++i) {
      frequencies.row(head.position[i], row.data());
      for (std::size_t p = 0; p < kDim / 2; ++p) {
        const std::size_t a = kind == RopeKind::kHalves ? p : 2 * p,
                          b = kind == RopeKind::kHalves ? p + kDim / 2 : 2 * p + 1;
        const double x = head.k[i][a], y = head.k[i][b];
        head.keys[i * kDim + a] = static_cast<float>(x * row[p] - y * row[kDim / 2 + p]);
        head.keys[i * kDim + b] = static_cast<float>(x * row[kDim / 2 + p] + y * row[p]);
      }
    }
    const auto policy = make_policy("leverage");
    PolicyModel model;
    model.heads = 1;
    model.rope = {options};
    policy->prepare(model);
    std::vector<float> score(head.k.size());
    policy->score(head.view(), score);
    Matrix centred = head.k, gram(kDim, std::vector<double>(kDim, 0));
    for (std::size_t d = 0; d < kDim; ++d) {
      double mean = 0;
      for (const auto& key : head.k) mean += key[d] / static_cast<double>(head.k.size());
      for (auto& key : centred) key[d] -= mean;
      gram[d][d] = 0.01;
    }
    for (const auto& key : centred)
      for (std::size_t a = 0; a < kDim; ++a)
        for (std::size_t b = 0; b < kDim; ++b) gram[a][b] += key[a] * key[b];
    const Matrix inverse = inverse_of(gram);
    for (std::size_t i = 0; i < score.size(); ++i)
      EXPECT_NEAR(score[i], form(inverse, centred[i]), 1e-4) << i << ", rope " << static_cast<int>(kind);
  }
}

TEST(KvpressPolicies, ChunkKvIsTheMeanOfEachChunk) {
  const RandomHead head(47, 4, 4, 6);
  const auto score = scores("chunkkv", head.view(), {{"pooling", "none"}, {"chunk", "20"}});
  for (std::size_t i = 0; i < 47; ++i) {
    const std::size_t first = i / 20 * 20, end = std::min<std::size_t>(47, first + 20);
    double mean = 0;
    for (std::size_t j = first; j < end; ++j) mean += head.w[j] / static_cast<double>(end - first);
    EXPECT_NEAR(score[i], mean, 1e-6) << i;
  }
  const auto pooled = scores("chunkkv", head.view(), {{"kernel", "3"}, {"chunk", "1"}});
  EXPECT_NEAR(pooled[5], (head.w[4] + head.w[5] + head.w[6]) / 3, 1e-6);
}

TEST(KvpressPolicies, RandomPerHeadDrawsForEachHead) {
  const RandomHead head(40, 4, 4, 7);
  HeadView first = head.view(), second = first;
  second.table = 1;
  EXPECT_EQ(scores("random", first), scores("random", second));
  EXPECT_NE(scores("random", first, {{"per", "head"}}), scores("random", second, {{"per", "head"}}));
  EXPECT_EQ(scores("random", first, {{"per", "head"}}), scores("random", first));
  const auto made = make_policy("random", {{"per", "head"}});
  EXPECT_TRUE(made->signals().own_heads);
  EXPECT_FALSE(make_policy("random")->signals().own_heads);
}

}  // namespace
}  // namespace palimpsest::testing
