#include "palimpsest/eval/likelihood.h"

#include <cassert>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/text/logprobs.h"

namespace palimpsest {
double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  if (target < 0 || static_cast<std::size_t>(target) >= logits.size())
    fail("token {} is outside the model's vocabulary of {}: the text was made by another tokenizer", target,
         logits.size());
  const double nats = log_sum_exp(logits) - static_cast<double>(logits[static_cast<std::size_t>(target)]);
  if (!std::isfinite(nats)) fail("the model's logits are not finite: its weights are damaged, or a kernel is wrong");
  return nats;
}

TopTwo top_two(std::span<const float> logits) {
  assert(logits.size() >= 2);
  TopTwo top{0, logits[0], -INFINITY};
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > top.first) {
      top = {static_cast<TokenId>(i), logits[i], top.first};
    } else if (logits[i] > top.second) {
      top.second = logits[i];
    }
  }
  return top;
}

double kl_divergence(std::span<const float> a, std::span<const float> b) {
  assert(a.size() == b.size());
  const double norm_a = log_sum_exp(a), norm_b = log_sum_exp(b);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_p = static_cast<double>(a[i]) - norm_a;
    sum += std::exp(log_p) * (log_p - (static_cast<double>(b[i]) - norm_b));
  }
  return sum;
}

}  // namespace palimpsest
