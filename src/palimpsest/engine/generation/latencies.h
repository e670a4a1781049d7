// Latency statistics in bounded memory.
#pragma once

#include <array>

namespace palimpsest {

struct Percentiles {
  double mean = 0, p50 = 0, p99 = 0;
};

// The mean is exact; percentiles are from a histogram with bins 1% wide, from 0.1 us to a day: max error 0.5%.
class Latencies {
 public:
  void add(double milliseconds);
  Percentiles summary() const;  // zeros if there were none
  long long count() const { return count_; }
  double total() const { return sum_; }

 private:
  static constexpr int kBins = 2800;
  long long count_ = 0;
  double sum_ = 0;
  std::array<long long, kBins> bins_{};
};

}  // namespace palimpsest
