#include "palimpsest/engine/generation/latencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

TEST(Latencies, NothingIsZero) {
  const Percentiles none = Latencies().summary();
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.p50, 0);
  EXPECT_EQ(none.p99, 0);
}

TEST(Latencies, AgreesWithTheSortedListWithinABin) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> times(1, 2);
  Latencies latencies;
  std::vector<double> all;
  double sum = 0;
  for (int i = 0; i < 50000; ++i) {
    const double ms = times(random);
    latencies.add(ms);
    all.push_back(ms);
    sum += ms;
  }
  std::sort(all.begin(), all.end());
  const Percentiles p = latencies.summary();
  EXPECT_EQ(latencies.count(), 50000);
  EXPECT_NEAR(p.mean, sum / 50000, 1e-9 * sum);
  EXPECT_NEAR(p.p50, all[24999], 0.006 * all[24999]);
  EXPECT_NEAR(p.p99, all[49499], 0.006 * all[49499]);
}

TEST(Latencies, RareStallsShowInTheHighPercentileOnly) {
  Latencies latencies;
  for (int i = 0; i < 1000; ++i) latencies.add(i % 50 == 0 ? 100 : 1);
  const Percentiles p = latencies.summary();
  EXPECT_NEAR(p.mean, 2.98, 1e-9);
  EXPECT_NEAR(p.p50, 1, 0.01);
  EXPECT_NEAR(p.p99, 100, 1);
}

TEST(Latencies, TakesTheImpossiblySmallAndLarge) {
  Latencies latencies;
  latencies.add(0);
  latencies.add(1e30);
  EXPECT_EQ(latencies.count(), 2);
  EXPECT_TRUE(std::isfinite(latencies.summary().p99));
}

}  // namespace
}  // namespace palimpsest::testing
