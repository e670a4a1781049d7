#include "palimpsest/core/cholesky.h"

#include <cassert>
#include <cmath>
#include <cstddef>

#include "palimpsest/core/types.h"

namespace palimpsest {

// matrix = L L', row by row; then L y = right, and L' x = y.
bool solve_positive_definite(std::span<double> matrix, int n, std::span<double> right, int columns) {
  assert(matrix.size() == at(n) * at(n) && right.size() == at(n) * at(columns));
  const auto row = [&](int i) { return matrix.data() + at(i) * at(n); };
  const auto side = [&](int i) { return right.data() + at(i) * at(columns); };
  for (int i = 0; i < n; ++i)
    for (int k = 0; k <= i; ++k) {
      double sum = row(i)[k];
      for (int j = 0; j < k; ++j) sum -= row(i)[j] * row(k)[j];
      if (k < i)
        row(i)[k] = sum / row(k)[k];
      else if (sum > 0)
        row(i)[i] = std::sqrt(sum);
      else
        return false;
    }
  const auto subtract = [&](double factor, int from, int to) {
    for (int c = 0; c < columns; ++c) side(to)[c] -= factor * side(from)[c];
  };
  const auto divide = [&](int i) {
    for (int c = 0; c < columns; ++c) side(i)[c] /= row(i)[i];
  };
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) subtract(row(i)[j], j, i);
    divide(i);
  }
  for (int i = n - 1; i >= 0; --i) {
    divide(i);
    for (int j = 0; j < i; ++j) subtract(row(i)[j], i, j);
  }
  return true;
}

}  // namespace palimpsest
