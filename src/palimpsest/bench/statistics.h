// What is said of repeated measurements.
#pragma once

#include <vector>

namespace palimpsest {

struct Summary {
  int count = 0;
  double mean = 0, deviation = 0;  // deviation of the sample (n - 1); 0 for one value
  double median = 0, least = 0, most = 0;
};
Summary summarize(std::vector<double> values);

}  // namespace palimpsest
