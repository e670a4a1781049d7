// What is said of repeated measurements.
#pragma once

#include <vector>

namespace palimpsest {

struct Summary {
  int count = 0;
  double mean = 0, deviation = 0;  // deviation of the sample (n - 1); 0 for one value
  double median = 0, min = 0, max = 0;
};
Summary summarize(std::vector<double> values);

// The value below which a share of the sorted, non-empty values lies; between two of them, in proportion.
double percentile(const std::vector<double>& sorted, double share);

}  // namespace palimpsest
