#include "palimpsest/speed/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace palimpsest {

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const auto count = static_cast<double>(n);
  summary.count = static_cast<int>(n);
  summary.min = values.front();
  summary.max = values.back();
  summary.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  for (const double value : values) summary.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  if (n > 1) summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

double percentile(const std::vector<double>& sorted, double share) {
  assert(!sorted.empty() && share >= 0 && share <= 1);
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace palimpsest
