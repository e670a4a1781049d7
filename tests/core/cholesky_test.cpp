// Solutions of random equations, against the product with the matrix.
#include "palimpsest/core/cholesky.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

TEST(Cholesky, Solves) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const std::size_t n : {1U, 2U, 7U, 40U})
    for (const std::size_t columns : {1U, 5U}) {
      std::vector<double> root(n * n), matrix(n * n), right(n * columns, 0), wanted(n * columns);
      for (double& x : root) x = normal(random);
      for (double& x : wanted) x = normal(random);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k) {
          matrix[i * n + k] = i == k ? 0.1 : 0;
          for (std::size_t j = 0; j < n; ++j) matrix[i * n + k] += root[i * n + j] * root[k * n + j];
        }
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t c = 0; c < columns; ++c)
          for (std::size_t j = 0; j < n; ++j) right[i * columns + c] += matrix[i * n + j] * wanted[j * columns + c];
      ASSERT_TRUE(solve_positive_definite(matrix, static_cast<int>(n), right, static_cast<int>(columns)));
      for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(right[i], wanted[i], 1e-9);
    }
}

TEST(Cholesky, RefusesWhatIsNotPositiveDefinite) {
  std::vector<double> singular = {1, 1, 1, 1}, negative = {1, 0, 0, -1}, right = {1, 1};
  EXPECT_FALSE(solve_positive_definite(singular, 2, right, 1));
  EXPECT_FALSE(solve_positive_definite(negative, 2, right, 1));
}

}  // namespace
}  // namespace palimpsest::testing
