// The expected attention from future queries, if they are normally distributed with the mean and covariance of the past
// queries (Expected Attention, arXiv 2510.00636, section 3). For a key k and a query head of mean m and covariance S,
// both rotated by the mean rotation of the next 512 positions:
//
//   s = k.m / sqrt(d) + k'S k / (2 d)      score = ||v|| * mean over the group of softmax over the tokens of s
//
// The first 4 tokens are excluded from the softmax and from the statistics, and rank above all others.
#include <cmath>
#include <limits>
#include <vector>

#include "palimpsest/policy/norm.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class ExpectedAttention final : public Policy {
 public:
  Signals signals() const override { return {.query_moments = QueryMoments{}, .keys = Keys{}, .values = Values{}}; }

  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> p;
    p.resize(score.size());
    std::ranges::fill(score, 0.0F);
    const auto counts = [&](std::size_t i) { return head.position[i] >= ExpectedQueries::kLeftOut; };
    for (int h = 0; h < head.queries.mean.count; ++h) {
      float max = -std::numeric_limits<float>::infinity(), sum = 0;
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) max = std::max(max, p[i] = log_expected(head.queries, h, head.keys[static_cast<int>(i)]));
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) sum += p[i] = std::exp(p[i] - max);
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) score[i] += p[i] / (sum * static_cast<float>(head.queries.mean.count));
    }
    float max = 0;
    for (std::size_t i = 0; i < score.size(); ++i)
      if (counts(i)) max = std::max(max, score[i] *= norm(head.values[static_cast<int>(i)]));
    for (std::size_t i = 0; i < score.size(); ++i)
      if (!counts(i)) score[i] = 1 + max;
  }

 private:
  // ln of the expected exp(q.k * scale).
  static float log_expected(const ExpectedQueries& queries, int h, std::span<const float> key) {
    float square = 0;
    for (int d = 0; d < queries.mean.width; ++d)
      square += key[static_cast<std::size_t>(d)] * dot(queries.covariance[h * queries.mean.width + d], key);
    return queries.scale * (dot(queries.mean[h], key) + queries.scale * square / 2);
  }
};

}  // namespace

PALIMPSEST_POLICY(expected_attention, ExpectedAttention,
                  "expected attention from the next 512 queries, times ||v|| (arXiv 2510.00636)")

}  // namespace palimpsest
