// Linear equations with a symmetric, positive definite matrix.
#pragma once

#include <span>

namespace palimpsest {

// Solves matrix * x = right for `columns` right-hand sides at once. `matrix`: [n][n], of which the lower triangle is
// read; the factor replaces it. `right`: [n][columns]; the solution replaces it. false: not positive definite within
// rounding, and both are undefined.
bool solve_positive_definite(std::span<double> matrix, int n, std::span<double> right, int columns);

}  // namespace palimpsest
