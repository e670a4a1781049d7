#include "palimpsest/budget/ada.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <numeric>

#include "palimpsest/core/score_order.h"

namespace palimpsest {
namespace {

constexpr double kSafeguard = 0.2;

// How many of the `total` highest scores of all heads each head has.
std::vector<int> among_highest(std::span<const std::vector<float>> scores, int total) {
  struct Entry {
    float score;
    int head;
  };
  std::vector<Entry> all;
  for (std::size_t h = 0; h < scores.size(); ++h)
    for (const float score : scores[h]) all.push_back({score, static_cast<int>(h)});
  assert(static_cast<std::size_t>(total) <= all.size());
  std::nth_element(all.begin(), all.begin() + total, all.end(), [](const Entry& a, const Entry& b) {
    if (score_above(a.score, b.score)) return true;
    return !score_above(b.score, a.score) && a.head < b.head;
  });
  std::vector<int> counts(scores.size(), 0);
  for (int i = 0; i < total; ++i) ++counts[static_cast<std::size_t>(all[static_cast<std::size_t>(i)].head)];
  return counts;
}

}  // namespace

std::vector<int> ada_counts(std::span<const std::vector<float>> scores, int total, int min) {
  const std::size_t heads = scores.size();
  const std::vector<int> in_highest = among_highest(scores, total);
  const auto max = [&](std::size_t h) { return static_cast<int>(scores[h].size()); };
  const int even = total / static_cast<int>(heads),
            safe = std::min(even, std::max(min, static_cast<int>(kSafeguard * even)));
  // Shares are fractions with the denominator `total`: exact, so that equal remainders are equal on every CPU.
  std::vector<int> counts(heads, 0);
  std::vector<std::int64_t> rest(heads, 0);
  for (std::size_t h = 0; total > 0 && h < heads; ++h) {
    const std::int64_t share =
        std::int64_t{safe} * total + in_highest[h] * (total - safe * static_cast<std::int64_t>(heads));
    counts[h] = static_cast<int>(std::min<std::int64_t>(share / total, max(h)));
    rest[h] = share - std::int64_t{counts[h]} * total;
  }
  std::vector<std::size_t> order(heads);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t h) { return rest[h]; });
  int left = total - std::accumulate(counts.begin(), counts.end(), 0);
  for (std::size_t i = 0; left > 0; ++i) {
    const std::size_t h = order[i % heads];
    if (counts[h] == max(h)) continue;
    ++counts[h];
    --left;
  }
  return counts;
}

}  // namespace palimpsest
