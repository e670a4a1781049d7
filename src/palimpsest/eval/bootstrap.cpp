#include "palimpsest/eval/bootstrap.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>

namespace palimpsest {
namespace {

double at_quantile(const std::vector<double>& sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Interval bootstrap(std::span<const TextBlock> blocks, int resamples, std::uint64_t seed) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Interval out{kNone, kNone, kNone, static_cast<long long>(blocks.size())};
  double sum = 0, weight = 0;
  for (const TextBlock& each : blocks) {
    sum += each.sum;
    weight += each.weight;
  }
  if (weight > 0) out.mean = sum / weight;
  if (out.blocks < kMinBlocks || resamples < 2) return out;

  std::mt19937_64 draw(seed);
  std::vector<double> means(static_cast<std::size_t>(resamples));
  for (double& mean : means) {
    double s = 0, w = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const TextBlock& each = blocks[static_cast<std::size_t>(draw() % blocks.size())];
      s += each.sum;
      w += each.weight;
    }
    mean = s / w;
  }
  std::ranges::sort(means);
  out.low = at_quantile(means, 0.025);
  out.high = at_quantile(means, 0.975);
  return out;
}

Interval wilson(long long right, long long asked) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN(), kZ = 1.959963984540054;
  if (asked < 1) return {kNone, kNone, kNone, 0};
  const double n = static_cast<double>(asked), share = static_cast<double>(right) / n, z2 = kZ * kZ;
  const double centre = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  return {share, std::max(0.0, centre - half), std::min(1.0, centre + half), asked};
}

std::vector<TextBlock> difference_blocks(std::span<const float> a, std::span<const float> b, long long block) {
  assert(a.size() == b.size() && block > 0);
  std::vector<TextBlock> blocks;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i % static_cast<std::size_t>(block) == 0) blocks.emplace_back();
    blocks.back().sum += static_cast<double>(b[i]) - static_cast<double>(a[i]);
    blocks.back().weight += 1;
  }
  return blocks;
}

}  // namespace palimpsest
