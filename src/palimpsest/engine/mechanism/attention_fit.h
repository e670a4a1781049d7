// Fits a head's kept tokens to what all its tokens were (Attention Matching, arXiv 2602.16284): biases of their slots
// and new values, so that some reference queries get the outputs that they had before the other tokens are dropped.
// Plain numbers: no cache, no slots. engine/mechanism/match.h applies it.
//
//   P_ij   weight of token j in the softmax of reference query i, over all tokens
//
//   biases   factors w_j = exp(bias_j) with sum_j P_ij w_j = sum of P_i over all tokens, over the kept ones j: the
//            denominator of each softmax stays. Least squares within [kMinFactor, kMaxFactor], near 1 by a ridge;
//            coordinate descent.
//   values   V + D with A (V + D) = the outputs over all tokens, where A are the softmax weights of the kept tokens
//   with
//            their biases. Ridge regression of D: D = A' (A A' + ridge I)^-1 (outputs - A V), one equation per query.
//
// If biases and values together miss the outputs by more than dropping alone does, only values are fitted.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct FitOptions {
  // Shares of P's mean square per token, and of the mean square of a query's weights: 0 would fit a few queries
  // exactly, and change tokens without limit that these queries hardly see.
  double bias_ridge = 1e-2, value_ridge = 1e-2;
  bool biases = true;
};

class AttentionFit {
 public:
  static constexpr double kMinFactor = 0x1p-5, kMaxFactor = 0x1p5;

  // `values`: of all tokens, those that are kept first. They must outlive solve().
  void begin(Rows values, int kept);
  // The scores of one reference query with all tokens, after scale, cap and biases; -infinity: it does not see the
  // token. `sink`: logit of a learned sink (AttentionShape::sink_logits). `scores` is overwritten.
  void add(std::span<float> scores, float sink);
  // false: there is nothing to fit to, or no numbers came out. Dropping the tokens is all that is left to do then.
  bool solve(const FitOptions& options);

  int queries() const { return static_cast<int>(missing_.size()); }
  std::span<const float> factors() const { return factor_; }  // [kept]
  Rows values() const { return {fitted_.data(), kept_, values_.width, values_.width}; }
  // Sum of squares of what the reference queries' outputs differ by: after dropping alone, after the fit.
  double dropped_error() const { return dropped_error_; }
  double error() const { return error_; }

 private:
  void fit_factors(double ridge);
  void reweigh();
  double residual(Rows values);
  bool fit_values(double ridge);
  Rows weights() const { return {weights_.data(), queries(), kept_, kept_}; }

  Rows values_;
  int kept_ = 0;
  std::vector<float> exponentials_;            // [queries][kept] of scores, relative to the kept tokens' maximum
  std::vector<double> scale_;                  // [queries] P = exponentials * scale; may be 0
  std::vector<float> outputs_;                 // [queries][value width] over all tokens
  std::vector<double> total_, missing_;        // [queries] sum of P over all tokens; exponential of a learned sink
  std::vector<float> factor_, column_;         // [kept] w; [kept][queries] P by token
  std::vector<float> weights_, rest_;          // [queries][kept] A; [queries][value width] outputs - A V
  std::vector<double> matrix_, right_, left_;  // of the equations; [queries] what a factor has yet to explain
  std::vector<float> fitted_, row_;
  double dropped_error_ = 0, error_ = 0;
};

}  // namespace palimpsest
