#include "palimpsest/fit/normal_equations.h"

#include <cassert>

#include "palimpsest/core/cholesky.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/vectors.h"

namespace palimpsest {

void NormalEquations::add(std::span<const float> columns, std::span<const float> target) {
  const std::size_t samples = target.size();
  assert(columns.size() == inputs_ * samples);
  const auto column = [&](std::size_t i) { return columns.subspan(i * samples, samples); };
  double* square = squares_.data();
  for (std::size_t i = 0; i < inputs_; ++i) {
    for (std::size_t j = 0; j <= i; ++j) *square++ += double{dot(column(i), column(j))};
    products_[i] += double{dot(column(i), target)};
  }
}

std::vector<float> NormalEquations::solve(double ridge) const {
  const std::size_t n = inputs_;
  std::vector<double> matrix(n * n), right(products_);
  double trace = 0;
  for (std::size_t i = 0, from = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) matrix[i * n + j] = squares_[from++];
    trace += matrix[i * n + i];
  }
  if (trace == 0) return std::vector<float>(n, 0);
  for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] += ridge * trace / static_cast<double>(n);
  if (!solve_positive_definite(matrix, static_cast<int>(n), right, 1))
    fail("a scorer cannot be fitted: its inputs depend on each other, or are not numbers: give another text");
  return {right.begin(), right.end()};
}

void NormalEquations::save(ByteWriter& out) const {
  out.array(std::span(squares_));
  out.array(std::span(products_));
}

void NormalEquations::load(ByteReader& in) {
  auto squares = in.array<double>(), products = in.array<double>();
  in.require(squares.size() == squares_.size() && products.size() == products_.size(), "its sums have another size");
  squares_ = std::move(squares), products_ = std::move(products);
}

}  // namespace palimpsest
