// From logits to nats.
#pragma once

#include <span>

#include "palimpsest/core/types.h"

namespace palimpsest {

// -log softmax(logits)[target]. The sum is in double over the terms exp(logit - max), so that 10^5 small terms beside
// a large one are not lost. Throws Error on a target outside the vocabulary and on logits that are not finite.
double negative_log_likelihood(std::span<const float> logits, TokenId target);

// The two largest logits and where the first is: what decides whether a difference between two runs may change a token.
struct TopTwo {
  TokenId best = 0;
  float first = 0, second = 0;
  float gap() const { return first - second; }
};
TopTwo top_two(std::span<const float> logits);

// Kullback-Leibler divergence of softmax(b) from softmax(a), in nats, in double.
double kl_divergence(std::span<const float> a, std::span<const float> b);

}  // namespace palimpsest
