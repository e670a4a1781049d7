// Running statistics of queries against their definitions in double precision.
#include "palimpsest/engine/mechanism/query_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace palimpsest::testing {
namespace {

using Matrix = std::vector<std::vector<double>>;

struct Queries {
  Queries(int count, int dim, unsigned seed) : count(count), dim(dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int i = 0; i < count * dim; ++i) rows.push_back(2 + static_cast<float>(i % dim) / 3 + normal(random));
  }
  double at(int i, int d) const { return rows[static_cast<std::size_t>(i * dim + d)]; }
  Rows part(int first, int many) const { return {rows.data() + first * dim, many, dim, dim}; }

  std::vector<double> mean(int from) const {
    std::vector<double> m(static_cast<std::size_t>(dim), 0);
    for (int i = from; i < count; ++i)
      for (int d = 0; d < dim; ++d) m[static_cast<std::size_t>(d)] += at(i, d) / (count - from);
    return m;
  }
  Matrix covariance(int from) const {
    const auto m = mean(from);
    Matrix c(m.size(), std::vector<double>(m.size(), 0));
    for (int i = from; i < count; ++i)
      for (int a = 0; a < dim; ++a)
        for (int b = 0; b < dim; ++b)
          c[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] += (at(i, a) - m[static_cast<std::size_t>(a)]) *
                                                                         (at(i, b) - m[static_cast<std::size_t>(b)]) /
                                                                         (count - from);
    return c;
  }
  int count, dim;
  std::vector<float> rows;
};

TEST(QueryStatistics, AreMeanAndCovarianceBehindTheFirstFour) {
  for (const int count : {5, 6, 40, 3000}) {
    const Queries queries(count, 12, static_cast<unsigned>(count));
    std::vector<float> statistics(static_cast<std::size_t>(query_floats(12)), 0);
    for (int first = 0, step = 1; first < count; first += step, step = step % 7 + 1)
      add_queries(queries.part(first, std::min(step, count - first)), first, statistics);
    EXPECT_EQ(statistics[0], static_cast<float>(count - 4));
    const auto mean = queries.mean(4);
    const auto covariance = queries.covariance(4);
    for (std::size_t a = 0; a < 12; ++a) {
      EXPECT_NEAR(statistics[1 + a], mean[a], 1e-5 * std::abs(mean[a])) << count;
      for (std::size_t b = 0; b < 12; ++b) EXPECT_NEAR(statistics[13 + a * 12 + b], covariance[a][b], 2e-5) << count;
    }
  }
}

// R m and R C R', R the mean of 512 rotations, written as matrices.
TEST(QueryStatistics, TurnToWhereTheNextQueriesAre) {
  constexpr int kDim = 12, kTurning = 8;
  for (const RopeKind kind : {RopeKind::kPairs, RopeKind::kHalves, RopeKind::kNone}) {
    RopeOptions options;
    options.kind = kind;
    options.dims = kind == RopeKind::kNone ? 0 : kTurning;
    const RopeFrequencies frequencies(options);
    const Position next = 777;
    Matrix matrix(kDim, std::vector<double>(kDim, 0));
    for (std::size_t d = 0; d < kDim; ++d) matrix[d][d] = 1;
    for (int pair = 0; pair < frequencies.pairs(); ++pair) {
      const auto a = static_cast<std::size_t>(kind == RopeKind::kHalves ? pair : 2 * pair);
      const auto b = static_cast<std::size_t>(kind == RopeKind::kHalves ? pair + kTurning / 2 : 2 * pair + 1);
      double c = 0, s = 0;
      for (int ahead = 0; ahead < 512; ++ahead) {
        c += std::cos(frequencies.angle(next + ahead, pair)) / 512;
        s += std::sin(frequencies.angle(next + ahead, pair)) / 512;
      }
      matrix[a][a] = matrix[b][b] = c;
      matrix[a][b] = -s;
      matrix[b][a] = s;
    }
    std::vector<float> statistics, memory;
    Matrix means;
    std::vector<Matrix> covariances;
    for (unsigned head = 0; head < 3; ++head) {
      const Queries queries(50, kDim, head);
      std::vector<float> one(static_cast<std::size_t>(query_floats(kDim)), 0);
      add_queries(queries.part(0, 50), 0, one);
      statistics.insert(statistics.end(), one.begin(), one.end());
      means.push_back(queries.mean(4));
      covariances.push_back(queries.covariance(4));
    }
    const ExpectedQueries rotated =
        expected_queries(statistics, 3, kDim, 0.5F, kind, mean_rotation(frequencies, next), memory);
    EXPECT_EQ(rotated.scale, 0.5F);
    for (int h = 0; h < 3; ++h)
      for (std::size_t r = 0; r < kDim; ++r) {
        double mean = 0;
        for (std::size_t c = 0; c < kDim; ++c) mean += matrix[r][c] * means[static_cast<std::size_t>(h)][c];
        EXPECT_NEAR(rotated.mean[h][r], mean, 1e-5);
        for (std::size_t c = 0; c < kDim; ++c) {
          double sum = 0;
          for (std::size_t i = 0; i < kDim; ++i)
            for (std::size_t j = 0; j < kDim; ++j)
              sum += matrix[r][i] * covariances[static_cast<std::size_t>(h)][i][j] * matrix[c][j];
          EXPECT_NEAR(rotated.covariance[h * kDim + static_cast<int>(r)][c], sum, 1e-5);
        }
      }
  }
}

}  // namespace
}  // namespace palimpsest::testing
