// The projection of a key on the direction in which its head's queries vary most (Q-Filters, arXiv 2503.02812: queries
// of a head share a direction u, and attention grows with k . u). The paper fits u to sample texts, once for a model;
// here it is that of the text's own expected queries, so that no file is needed: for each query head, with mean m and
// covariance S of the past queries, both rotated by the mean rotation of the next 512 positions,
//
//   u = first eigenvector of S + m m', of length 1, with m . u >= 0        score_i = k_i . mean over the query group of
//   u
#include <algorithm>
#include <cmath>
#include <vector>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class QFilter final : public Policy {
  static constexpr int kSteps = 200;           // of the power iteration, at most
  static constexpr double kConverged = 1e-14;  // ||difference||^2 of two steps

 public:
  Signals signals() const override { return {.query_moments = QueryMoments{}, .keys = Keys{}}; }

  void score(const HeadView& head, std::span<float> score) const override {
    const ExpectedQueries& queries = head.queries;
    const int width = queries.mean.width;
    thread_local std::vector<float> filter;
    filter.assign(at(width), 0);
    for (int h = 0; h < queries.mean.count; ++h)
      add_direction({queries.covariance[h * width].data(), width, width, queries.covariance.stride}, queries.mean[h],
                    1.0 / queries.mean.count, filter);
    dot_rows(head.keys, filter, score);
    for (std::size_t i = 0; i < score.size(); ++i)
      if (head.position[i] == kNoPosition) score[i] = 0;  // of any key: two caches may differ there
  }

 private:
  // sum += factor * u. Nothing if all queries are 0.
  static void add_direction(const Rows& covariance, std::span<const float> mean, double factor, std::span<float> sum) {
    const std::size_t n = mean.size();
    thread_local std::vector<double> moment, now, next;
    moment.resize(n * n);
    std::size_t largest = 0;
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b)
        moment[a * n + b] = double{covariance[static_cast<int>(a)][b]} + double{mean[a]} * mean[b];
      if (moment[a * n + a] > moment[largest * n + largest]) largest = a;
    }
    // The column of the largest diagonal element is not orthogonal to u unless several eigenvalues are equal.
    now.assign(moment.begin() + static_cast<std::ptrdiff_t>(largest * n),
               moment.begin() + static_cast<std::ptrdiff_t>(largest * n + n));
    if (!to_unit(now)) return;
    next.resize(n);
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t a = 0; a < n; ++a) {
        double product = 0;
        for (std::size_t b = 0; b < n; ++b) product += moment[a * n + b] * now[b];
        next[a] = product;
      }
      if (!to_unit(next)) return;
      double change = 0;
      for (std::size_t a = 0; a < n; ++a) change += (next[a] - now[a]) * (next[a] - now[a]);
      now.swap(next);
      if (change < kConverged) break;
    }
    double along = 0;
    for (std::size_t a = 0; a < n; ++a) along += now[a] * mean[a];
    for (std::size_t a = 0; a < n; ++a) sum[a] += static_cast<float>(along < 0 ? -factor * now[a] : factor * now[a]);
  }

  static bool to_unit(std::vector<double>& x) {
    double square = 0;
    for (const double e : x) square += e * e;
    if (!(square > 0)) return false;
    for (double& e : x) e /= std::sqrt(square);
    return true;
  }
};

}  // namespace

PALIMPSEST_POLICY(qfilter, QFilter,
                  "the key along the main direction of its head's queries (Q-Filters, arXiv 2503.02812)")

}  // namespace palimpsest
