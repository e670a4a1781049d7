#include "palimpsest/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const auto count = static_cast<double>(n);
  summary.count = static_cast<int>(n);
  summary.least = values.front();
  summary.most = values.back();
  summary.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  for (const double value : values) summary.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  if (n > 1) summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

}  // namespace palimpsest
