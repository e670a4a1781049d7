// Summary statistics of repeated measurements.
#pragma once

#include <vector>

namespace palimpsest {

struct Summary {
  int count = 0;
  double mean = 0, deviation = 0;  // deviation: sample standard deviation (n - 1); 0 for one value
  double median = 0, min = 0, max = 0;
};
Summary summarize(std::vector<double> values);

// The quantile at `share` in [0, 1] of sorted, non-empty values, linearly interpolated.
double percentile(const std::vector<double>& sorted, double share);

}  // namespace palimpsest
