// Loss, top tokens and KL divergence from logits.
#pragma once

#include <span>

#include "palimpsest/core/types.h"

namespace palimpsest {

// -log softmax(logits)[target], in nats. Sums exp(logit - max) in double, so that 10^5 small terms beside a large one
// are not lost. Throws Error for a target outside the vocabulary and for logits that are not finite.
double negative_log_likelihood(std::span<const float> logits, TokenId target);

// The two largest logits and the index of the first. Their gap bounds the logit difference that keeps the greedy token.
struct TopTwo {
  TokenId best = 0;
  float first = 0, second = 0;
  float gap() const { return first - second; }
};
TopTwo top_two(std::span<const float> logits);

// KL divergence of softmax(b) from softmax(a), in nats, computed in double.
double kl_divergence(std::span<const float> a, std::span<const float> b);

}  // namespace palimpsest
