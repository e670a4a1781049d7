#include "palimpsest/speed/statistics.h"

#include <gtest/gtest.h>

namespace palimpsest::testing {
namespace {

TEST(Statistics, KnownValues) {
  const auto s = summarize({4, 2, 9, 1});
  EXPECT_EQ(s.count, 4);
  EXPECT_DOUBLE_EQ(s.mean, 4);
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_NEAR(s.deviation, 3.559026, 1e-6);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.max, 9);
}

TEST(Statistics, OneAndNone) {
  EXPECT_DOUBLE_EQ(summarize({5}).deviation, 0);
  EXPECT_DOUBLE_EQ(summarize({5}).median, 5);
  EXPECT_EQ(summarize({}).count, 0);
}

TEST(Statistics, PercentilesLieBetweenTheirNeighbours) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 1), 16);
  EXPECT_EQ(percentile(values, 0.5), 4);
  EXPECT_DOUBLE_EQ(percentile(values, 0.9), 8 + 0.6 * 8);
  EXPECT_EQ(percentile({3}, 0.99), 3);
}

}  // namespace
}  // namespace palimpsest::testing
