#include "palimpsest/eval/compare.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/likelihood.h"

namespace palimpsest {
namespace {

void add_step(Comparison& row, std::span<const float> a, std::span<const float> b, double tolerance) {
  double max_difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // A NaN on either side counts as different.
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    max_difference = std::isfinite(difference) ? std::max(max_difference, difference) : HUGE_VAL;
    size = std::max(size, std::abs(static_cast<double>(a[i])));
  }
  const double relative = size > 0 ? max_difference / size : max_difference;
  if (relative > row.max_difference) {
    row.max_difference = relative;
    row.max_difference_step = row.steps;
  }
  const TopTwo top = top_two(a);
  if (top.best == top_two(b).best) {
    ++row.same_top;
  } else if (static_cast<double>(top.gap()) > tolerance * size) {
    ++row.flipped;
  }
  row.mean_kl += kl_divergence(a, b);  // a sum until the end
  ++row.steps;
}

}  // namespace

std::vector<Comparison> compare(Session& reference, std::span<Session* const> others, std::span<const TokenId> tokens,
                                double tolerance, const Session::Progress& progress) {
  if (others.empty()) fail("nothing to compare: name two methods or more");
  std::vector<Comparison> rows(others.size());
  std::vector<float> expected;
  reference.clear();
  for (Session* other : others) other->clear();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto logits = reference.decode(tokens[t]);
    expected.assign(logits.begin(), logits.end());
    for (std::size_t i = 0; i < others.size(); ++i)
      add_step(rows[i], expected, others[i]->decode(tokens[t]), tolerance);
    if (progress && !progress(static_cast<long long>(t + 1), static_cast<long long>(tokens.size()))) break;
  }
  for (auto& row : rows) row.mean_kl /= static_cast<double>(std::max(1LL, row.steps));
  return rows;
}

}  // namespace palimpsest
