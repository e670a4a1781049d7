#include "palimpsest/engine/generation/latencies.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {
namespace {

constexpr double kMinLatency = 1e-4, kRatio = 1.01;  // ms

}  // namespace

void Latencies::add(double milliseconds) {
  ++count_;
  sum_ += milliseconds;
  const double bin = std::floor(std::log(std::max(milliseconds, kMinLatency) / kMinLatency) / std::log(kRatio));
  ++bins_[static_cast<std::size_t>(std::min(bin, kBins - 1.0))];
}

Percentiles Latencies::summary() const {
  if (count_ == 0) return {};
  const auto at = [&](double share) {  // nearest rank
    const auto rank = std::max(1LL, static_cast<long long>(std::ceil(share * static_cast<double>(count_))));
    long long seen = 0;
    int bin = 0;
    while ((seen += bins_[static_cast<std::size_t>(bin)]) < rank) ++bin;
    return kMinLatency * std::pow(kRatio, bin + 0.5);
  };
  return {sum_ / static_cast<double>(count_), at(0.50), at(0.99)};
}

}  // namespace palimpsest
