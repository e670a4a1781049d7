// Steps of recurrent states against loops in double precision, for each instruction set.
#include "palimpsest/graph/cpu/scan_rows.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

std::vector<float> normal(std::size_t count, float size, std::mt19937& random) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i) max = std::max(max, std::abs(double{a[i]} - b[i]));
  return max;
}

void check(int rows, int width, bool delta, bool in_place, std::mt19937& random) {
  const auto all = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  const float unit = 1 / std::sqrt(static_cast<float>(width));
  const std::vector<float> key = normal(static_cast<std::size_t>(width), unit, random),
                           query = normal(static_cast<std::size_t>(width), unit, random),
                           input = normal(static_cast<std::size_t>(rows), 1, random);
  std::vector<float> before = normal(all, 1, random), after(all), expected(all), out(static_cast<std::size_t>(rows)),
                     expected_out = out;
  ScanRows scan{.before = before.data(),
                .after = expected.data(),
                .rows = rows,
                .width = width,
                .key = key.data(),
                .query = query.data(),
                .input = input.data(),
                .decay = 0.9F,
                .factor = 0.7F,
                .delta = delta,
                .out = expected_out.data()};
  scan_rows_reference(scan);
  scan.after = in_place ? before.data() : after.data();
  scan.out = out.data();
  scan_rows(scan);
  EXPECT_LE(distance(in_place ? before : after, expected), 5e-6);
  EXPECT_LE(distance(out, expected_out), 2e-5);
}

TEST(ScanRows, AreThoseOfPlainLoops) {
  std::mt19937 random(5);
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    SCOPED_TRACE(hwy::TargetName(left & -left));
    hwy::SetSupportedTargetsForTest((left & -left) | HWY_STATIC_TARGET);
    for (const int width : {16, 32, 48, 128, 256})
      for (const int rows : {1, 3, 4, 7, 64})
        for (const bool delta : {false, true})
          for (const bool in_place : {false, true}) check(rows, width, delta, in_place, random);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// A row's bits do not depend on the other rows: threads and batches may split a head.
TEST(ScanRows, OfARowAreTheSameAlone) {
  std::mt19937 random(6);
  constexpr int kRows = 7, kWidth = 64;
  const std::vector<float> before = normal(kRows * kWidth, 1, random), key = normal(kWidth, 0.1F, random),
                           query = normal(kWidth, 0.1F, random), input = normal(kRows, 1, random);
  for (const bool delta : {false, true}) {
    std::vector<float> together(kRows * kWidth), alone = together, out(kRows), out_alone = out;
    const auto of = [&](int first, int rows, std::vector<float>& after, std::vector<float>& result) {
      scan_rows({.before = before.data() + first * kWidth,
                 .after = after.data() + first * kWidth,
                 .rows = rows,
                 .width = kWidth,
                 .key = key.data(),
                 .query = query.data(),
                 .input = input.data() + first,
                 .decay = 0.8F,
                 .factor = 0.6F,
                 .delta = delta,
                 .out = result.data() + first});
    };
    of(0, kRows, together, out);
    for (int row = 0; row < kRows; ++row) of(row, 1, alone, out_alone);
    EXPECT_EQ(together, alone);
    EXPECT_EQ(out, out_alone);
  }
}

}  // namespace
}  // namespace palimpsest::testing
