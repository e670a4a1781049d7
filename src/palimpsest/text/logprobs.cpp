#include "palimpsest/text/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

namespace palimpsest {

double log_sum_exp(std::span<const float> logits) {
  const float top = *std::ranges::max_element(logits);
  std::array<double, 4> sum{};  // four independent sums, so that additions do not wait for one another
  std::size_t i = 0;
  for (; i + 4 <= logits.size(); i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) sum[lane] += static_cast<double>(std::exp(logits[i + lane] - top));
  for (; i < logits.size(); ++i) sum[0] += static_cast<double>(std::exp(logits[i] - top));
  return std::log((sum[0] + sum[1]) + (sum[2] + sum[3])) + static_cast<double>(top);
}

const TokenProbabilities& LikeliestTokens::of(std::span<const float> logits, double log_sum, int count) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto listed = std::min<std::ptrdiff_t>(count, std::ssize(order_));
  std::ranges::partial_sort(order_, order_.begin() + listed, std::greater(), [&](TokenId t) { return logits[at(t)]; });
  tokens_.clear();
  for (const TokenId token : std::span(order_).first(static_cast<std::size_t>(listed)))
    tokens_.emplace_back(token, static_cast<float>(logits[at(token)] - log_sum));
  return tokens_;
}

}  // namespace palimpsest
