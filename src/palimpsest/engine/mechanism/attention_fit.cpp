#include "palimpsest/engine/mechanism/attention_fit.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "palimpsest/core/cholesky.h"
#include "palimpsest/core/vectors.h"

namespace palimpsest {

void AttentionFit::begin(Rows values, int kept) {
  assert(kept > 0 && kept <= values.count);
  values_ = values;
  kept_ = kept;
  for (auto* each : {&exponentials_, &outputs_}) each->clear();
  for (auto* each : {&scale_, &total_, &missing_}) each->clear();
}

void AttentionFit::add(std::span<float> scores, float sink) {
  assert(std::ssize(scores) == values_.count);
  const float max = std::max(std::ranges::max(scores), sink);
  if (!std::isfinite(max)) return;
  // Relative to the kept tokens' maximum: their shares of all tokens may be below every float.
  const auto kept = scores.first(at(kept_));
  const float kept_max = std::max(std::ranges::max(kept), sink);
  const float from = std::isfinite(kept_max) ? kept_max : max;
  for (const float score : kept) exponentials_.push_back(std::exp(score - from));
  missing_.push_back(std::exp(double{sink} - from));
  double sum = 0;
  for (float& score : scores) sum += score = std::exp(score - max);
  const double of_sink = std::exp(double{sink} - max), denominator = sum + of_sink;
  const auto inverse = static_cast<float>(1 / denominator);
  for (float& score : scores) score *= inverse;
  scale_.push_back(std::exp(double{from} - max) / denominator);
  total_.push_back(sum / denominator);
  outputs_.resize(outputs_.size() + at(values_.width), 0);
  add_scaled_rows(values_, scores, std::span(outputs_).last(at(values_.width)));
}

bool AttentionFit::solve(const FitOptions& options) {
  if (queries() == 0) return false;
  const Rows kept = values_.rows(0, kept_);
  factor_.assign(at(kept_), 1);
  reweigh();
  dropped_error_ = residual(kept);
  for (const bool biases : {true, false}) {
    if (biases && !options.biases) continue;
    if (biases)
      fit_factors(options.bias_ridge);
    else
      factor_.assign(at(kept_), 1);
    reweigh();
    residual(kept);
    if (!fit_values(options.value_ridge)) continue;
    error_ = residual(values());
    if (error_ <= dropped_error_) return true;
  }
  return false;
}

// Minimises sum_i (sum_j P_ij w_j - total_i)^2 + r sum_j (w_j - 1)^2, one w_j at a time.
void AttentionFit::fit_factors(double ridge) {
  constexpr int kSweeps = 200;
  constexpr double kConverged = 1e-4;  // of a factor, in one sweep
  const std::size_t n = at(queries());
  column_.resize(exponentials_.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < at(kept_); ++j)
      column_[j * n + i] = static_cast<float>(exponentials_[i * at(kept_) + j] * scale_[i]);
  const auto column = [&](int j) { return std::span<const float>(column_).subspan(at(j) * n, n); };
  double mean = 0;
  left_ = total_;
  for (int j = 0; j < kept_; ++j) {
    mean += double{dot(column(j), column(j))} / kept_;
    for (std::size_t i = 0; i < n; ++i) left_[i] -= column(j)[i];
  }
  const double r = std::max(ridge * mean, std::numeric_limits<double>::min());
  bool changed = true;
  for (int sweep = 0; changed && sweep < kSweeps; ++sweep) {
    changed = false;
    for (int j = 0; j < kept_; ++j) {
      const auto p = column(j);
      double gradient = r * (1 - double{factor_[at(j)]}), square = r;
      for (std::size_t i = 0; i < n; ++i) gradient += left_[i] * p[i], square += double{p[i]} * p[i];
      const double now = std::clamp(factor_[at(j)] + gradient / square, kMinFactor, kMaxFactor);
      const double step = static_cast<float>(now) - factor_[at(j)];
      if (step == 0) continue;
      changed |= std::abs(step) > kConverged * now;
      factor_[at(j)] = static_cast<float>(now);
      for (std::size_t i = 0; i < n; ++i) left_[i] -= step * p[i];
    }
  }
}

// A: the softmax weights of the kept tokens with these factors.
void AttentionFit::reweigh() {
  weights_.resize(exponentials_.size());
  for (int i = 0; i < queries(); ++i) {
    const float* const exponential = exponentials_.data() + at(i) * at(kept_);
    float* const weight = weights_.data() + at(i) * at(kept_);
    double sum = missing_[at(i)];
    for (int j = 0; j < kept_; ++j) sum += weight[j] = exponential[j] * factor_[at(j)];
    const float inverse = sum > 0 ? static_cast<float>(1 / sum) : 0;  // 0: it sees no kept token
    for (int j = 0; j < kept_; ++j) weight[j] *= inverse;
  }
}

// rest_ = outputs - A values; the sum of its squares.
double AttentionFit::residual(Rows values) {
  rest_.assign(outputs_.size(), 0);
  double sum = 0;
  for (int i = 0; i < queries(); ++i) {
    const auto rest = std::span(rest_).subspan(at(i) * at(values.width), at(values.width));
    add_scaled_rows(values, weights()[i], rest);
    for (std::size_t d = 0; d < rest.size(); ++d) {
      rest[d] = outputs_[at(i) * rest.size() + d] - rest[d];
      sum += double{rest[d]} * rest[d];
    }
  }
  return sum;
}

bool AttentionFit::fit_values(double ridge) {
  const int n = queries(), width = values_.width;
  matrix_.resize(at(n) * at(n));
  row_.resize(at(n));
  double trace = 0;
  for (int i = 0; i < n; ++i) {
    dot_rows(weights(), weights()[i], row_);
    for (int k = 0; k <= i; ++k) matrix_[at(i) * at(n) + at(k)] = row_[at(k)];
    trace += row_[at(i)];
  }
  if (!(trace > 0)) return false;
  // The products are of f32: below 1e-6 of the trace the matrix need not be positive definite.
  for (int i = 0; i < n; ++i) matrix_[at(i) * at(n) + at(i)] += std::max(ridge, 1e-6 * n) * trace / n;
  right_.assign(rest_.begin(), rest_.end());
  if (!solve_positive_definite(matrix_, n, right_, width)) return false;
  fitted_.clear();
  for (int j = 0; j < kept_; ++j) fitted_.insert(fitted_.end(), values_[j].begin(), values_[j].end());
  row_.resize(at(width));
  for (int i = 0; i < n; ++i) {
    for (int d = 0; d < width; ++d) row_[at(d)] = static_cast<float>(right_[at(i) * at(width) + at(d)]);
    for (int j = 0; j < kept_; ++j)
      if (const float weight = weights()[i][at(j)]; weight != 0)
        add_scaled(weight, row_, std::span(fitted_).subspan(at(j) * at(width), at(width)));
  }
  return std::ranges::all_of(fitted_, [](float x) { return std::isfinite(x); });
}

}  // namespace palimpsest
