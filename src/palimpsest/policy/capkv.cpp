// What a token adds to the capacity of the cache for the expected queries (CapKV, arXiv 2604.25975; as kvpress's
// CapPress). With the mean m of a query head, rotated by the mean rotation of the next 512 positions, and tau = 5:
//
//   w_i = exp(tau cos(k_i, m) - max)    A = I + sum_i w_i v_i v_i'    score_i = w_i v_i' A^-1 v_i
//
// averaged over the query group. The first 4 tokens are excluded and rank above all others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "palimpsest/core/cholesky.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class CapKv final : public Policy {
  static constexpr float kSharpness = 5, kFloor = 1e-6F;

 public:
  Signals signals() const override { return {.query_moments = QueryMoments{}, .keys = Keys{}, .values = Values{}}; }

  void score(const HeadView& head, std::span<float> score) const override {
    thread_local std::vector<float> weight, length, leverage;
    weight.resize(score.size());
    length.resize(score.size());
    leverage.resize(score.size());
    norm_rows(head.keys, length);
    std::ranges::fill(score, 0.0F);
    const auto counts = [&](std::size_t i) { return head.position[i] >= ExpectedQueries::kLeftOut; };
    for (int h = 0; h < head.queries.mean.count; ++h) {
      const auto mean = head.queries.mean[h];
      dot_rows(head.keys, mean, weight);
      const float of_mean = std::max(norm(mean), std::numeric_limits<float>::min());
      float max = -std::numeric_limits<float>::infinity();
      for (std::size_t i = 0; i < weight.size(); ++i)
        if (counts(i))
          max = std::max(max,
                         weight[i] *= kSharpness / (of_mean * std::max(length[i], std::numeric_limits<float>::min())));
      for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = counts(i) ? std::exp(weight[i] - max) : 0;
      leverages(head.values, weight, leverage);
      for (std::size_t i = 0; i < score.size(); ++i) score[i] += weight[i] * leverage[i];
    }
    const float most = std::ranges::max(score);
    for (std::size_t i = 0; i < score.size(); ++i)
      if (!counts(i)) score[i] = 1 + most;
  }

 private:
  // v_i' (I + sum_j (w_j + floor) v_j v_j')^-1 v_i; tokens of weight 0 are not in the sum.
  static void leverages(const Rows& values, std::span<const float> weight, std::span<float> out) {
    const auto n = static_cast<std::size_t>(values.width);
    thread_local std::vector<double> capacity, inverse;
    thread_local std::vector<float> matrix;
    capacity.assign(n * n, 0);
    for (int i = 0; i < values.count; ++i) {
      const auto w = weight[static_cast<std::size_t>(i)];
      if (w == 0) continue;
      const auto v = values[i];
      for (std::size_t a = 0; a < n; ++a) {
        const double scaled = (double{w} + kFloor) * v[a];
        for (std::size_t b = 0; b <= a; ++b) capacity[a * n + b] += scaled * v[b];
      }
    }
    inverse.assign(n * n, 0);
    for (std::size_t a = 0; a < n; ++a) capacity[a * n + a] += 1, inverse[a * n + a] = 1;
    if (!solve_positive_definite(capacity, values.width, inverse, values.width)) {
      std::ranges::fill(out, 0.0F);
      return;
    }
    matrix.assign(inverse.begin(), inverse.end());
    quadratic_forms({matrix.data(), values.width, values.width, values.width}, values, out);
  }
};

}  // namespace

PALIMPSEST_POLICY(capkv, CapKv, "what a token adds to the log-determinant of weighted values (CapKV, arXiv 2604.25975)")

}  // namespace palimpsest
