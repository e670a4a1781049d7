// Log probabilities of tokens: log softmax of a row of logits, in nats.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// ln(sum(exp(logits))). Sums in double, so that 10^5 small terms beside a large one are not lost.
double log_sum_exp(std::span<const float> logits);

using TokenProbabilities = std::vector<std::pair<TokenId, float>>;  // a token, and ln of its probability

// The likeliest tokens. Its memory is reused from row to row.
class LikeliestTokens {
 public:
  // The `count` likeliest tokens of a row, likeliest first; `log_sum`: log_sum_exp(logits). Valid until the next call.
  const TokenProbabilities& of(std::span<const float> logits, double log_sum, int count);

 private:
  std::vector<TokenId> order_;  // [vocabulary]
  TokenProbabilities tokens_;
};

}  // namespace palimpsest
