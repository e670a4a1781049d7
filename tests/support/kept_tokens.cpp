#include "tests/support/kept_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace palimpsest::testing {
namespace {

using Head = std::map<Position, float>;

constexpr double kNearTie = 1e-3;

double spread(const Head& head) {
  float low = std::numeric_limits<float>::max(), high = std::numeric_limits<float>::lowest();
  for (const auto& [position, score] : head) {
    if (!std::isfinite(score)) continue;
    low = std::min(low, score);
    high = std::max(high, score);
  }
  return std::max(0.0, static_cast<double>(high) - low);
}

// Positions of `a` that are not in `b`.
std::vector<Position> only_in(const Head& a, const Head& b) {
  std::vector<Position> out;
  for (const auto& [position, score] : a)
    if (!b.contains(position)) out.push_back(position);
  return out;
}

// Whether all scores of `x` in `of_x` and of `y` in `of_y` are known and nearly equal.
bool nearly_equal(const Head& of_x, const std::vector<Position>& x, const Head& of_y, const std::vector<Position>& y) {
  const double bound = kNearTie * std::max(spread(of_x), spread(of_y));
  return std::ranges::all_of(x, [&](Position i) {
    return std::ranges::all_of(y, [&](Position j) {
      const auto score_i = of_x.find(i), score_j = of_y.find(j);
      return score_i != of_x.end() && score_j != of_y.end() &&
             std::abs(static_cast<double>(score_i->second) - score_j->second) <= bound;
    });
  });
}

}  // namespace

KeptTokens kept_tokens(const Cache& cache, const std::vector<int>& heads) {
  KeptTokens out;
  for (const int head : heads) {
    const SlotTable& table = cache.table(cache.table_of(head));
    const PositionView position = table.position();
    auto& kept = out.emplace_back();
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (position[slot] != kNoPosition) kept[position[slot]] = table.score()[slot];
  }
  return out;
}

std::size_t steps_with_same_tokens(const std::vector<KeptTokens>& a, const std::vector<KeptTokens>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t step = 0; step < std::min(a.size(), b.size()); ++step)
    for (std::size_t head = 0; head < a[step].size(); ++head) {
      const Head &of_a = a[step][head], &of_b = b[step][head];
      const auto x = only_in(of_a, of_b), y = only_in(of_b, of_a);
      if (x.empty() && y.empty()) continue;
      const bool when_compared = step > 0 && nearly_equal(a[step - 1][head], x, a[step - 1][head], y);
      EXPECT_TRUE(x.size() == y.size() && (when_compared || nearly_equal(of_a, x, of_b, y)))
          << fmt::format("step {}, head {}: {} and {} tokens are kept in one run only, and their scores do not tie",
                         step, head, x.size(), y.size());
      return step;
    }
  return a.size();
}

}  // namespace palimpsest::testing
