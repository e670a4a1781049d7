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

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class ExpectedAttention final : public Policy {
 public:
  Signals signals() const override { return {.query_moments = QueryMoments{}, .keys = Keys{}, .values = Values{}}; }

  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> p, square;
    p.resize(score.size());
    square.resize(score.size());
    std::ranges::fill(score, 0.0F);
    const auto counts = [&](std::size_t i) { return head.position[i] >= ExpectedQueries::kLeftOut; };
    for (int h = 0; h < head.queries.mean.count; ++h) {
      float max = -std::numeric_limits<float>::infinity(), sum = 0;
      // ln of the expected exp(q.k * scale).
      const ExpectedQueries& q = head.queries;
      const int width = q.mean.width;
      dot_rows(head.keys, q.mean[h], p);
      quadratic_forms({q.covariance[h * width].data(), width, width, q.covariance.stride}, head.keys, square);
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) max = std::max(max, p[i] = q.scale * (p[i] + q.scale * square[i] / 2));
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) sum += p[i] = std::exp(p[i] - max);
      for (std::size_t i = 0; i < p.size(); ++i)
        if (counts(i)) score[i] += p[i] / (sum * static_cast<float>(head.queries.mean.count));
    }
    norm_rows(head.values, p);
    float max = 0;
    for (std::size_t i = 0; i < score.size(); ++i)
      if (counts(i)) max = std::max(max, score[i] *= p[i]);
    for (std::size_t i = 0; i < score.size(); ++i)
      if (!counts(i)) score[i] = 1 + max;
  }
};

}  // namespace

PALIMPSEST_POLICY(expected_attention, ExpectedAttention,
                  "expected attention from the next 512 queries, times ||v|| (arXiv 2510.00636)")

}  // namespace palimpsest
