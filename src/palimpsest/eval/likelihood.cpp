#include "palimpsest/eval/likelihood.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// log(sum(exp(logit - top))). Four independent sums, so that additions do not wait for one another.
double log_sum(std::span<const float> logits, float top) {
  std::array<double, 4> sum{};
  std::size_t i = 0;
  for (; i + 4 <= logits.size(); i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) sum[lane] += static_cast<double>(std::exp(logits[i + lane] - top));
  for (; i < logits.size(); ++i) sum[0] += static_cast<double>(std::exp(logits[i] - top));
  return std::log((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

float largest(std::span<const float> logits) {
  return *std::max_element(logits.begin(), logits.end());
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  if (target < 0 || static_cast<std::size_t>(target) >= logits.size())
    fail("token {} is outside the model's vocabulary of {}: the text was made by another tokenizer", target,
         logits.size());
  const float top = largest(logits);
  const double nats =
      log_sum(logits, top) - (static_cast<double>(logits[static_cast<std::size_t>(target)]) - static_cast<double>(top));
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
  const float top_a = largest(a), top_b = largest(b);
  const double norm_a = log_sum(a, top_a) + static_cast<double>(top_a);
  const double norm_b = log_sum(b, top_b) + static_cast<double>(top_b);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_p = static_cast<double>(a[i]) - norm_a;
    sum += std::exp(log_p) * (log_p - (static_cast<double>(b[i]) - norm_b));
  }
  return sum;
}

}  // namespace palimpsest
