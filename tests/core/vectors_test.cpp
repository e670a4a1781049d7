// Sums over rows against loops in double precision, for each instruction set.
#include "palimpsest/core/vectors.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

class Vectors : public ::testing::Test {
 protected:
  // Rows with gaps of NaN between them: reading beyond the width shows.
  Rows rows(int count, int width, std::vector<float>& memory) {
    const std::int64_t stride = width + 3;
    memory.assign(static_cast<std::size_t>(count * stride), NAN);
    for (int i = 0; i < count; ++i)
      for (int k = 0; k < width; ++k) memory[static_cast<std::size_t>(i * stride + k)] = normal_(random_);
    return {memory.data(), count, width, stride};
  }
  static void for_each_target(const auto& test) {
    for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
      SCOPED_TRACE(hwy::TargetName(left & -left));
      hwy::SetSupportedTargetsForTest((left & -left) | HWY_STATIC_TARGET);
      test();
    }
    hwy::SetSupportedTargetsForTest(0);
  }
  static void expect_near(double got, double expected, double size) { EXPECT_NEAR(got, expected, 1e-6 * size + 1e-30); }

  std::mt19937 random_{11};
  std::normal_distribution<float> normal_;
};

TEST_F(Vectors, AreTheSumsOfTheirProducts) {
  for_each_target([&] {
    for (const int width : {1, 3, 8, 16, 17, 64, 70, 128}) {
      for (const int count : {0, 1, 3, 4, 5, 8, 9, 19}) {
        std::vector<float> memory, x_memory, m_memory, out(static_cast<std::size_t>(count));
        const Rows all = rows(count, width, memory), matrix = rows(width, width, m_memory);
        const auto x = rows(1, width, x_memory)[0];
        const auto each = [&](const auto& term) {  // checks out[i] against the sum of term(i, k)
          for (int i = 0; i < count; ++i) {
            double sum = 0, size = 0;
            for (int k = 0; k < width; ++k) {
              const double value = term(i, k);
              sum += value;
              size += std::abs(value);
            }
            expect_near(out[at(i)], sum, size);
          }
        };
        dot_rows(all, x, out);
        each([&](int i, int k) { return double{all[i][at(k)]} * x[at(k)]; });
        for (int i = 0; i < count; ++i) EXPECT_EQ(dot(all[i], x), out[at(i)]);
        norm_rows(all, out);
        for (int i = 0; i < count; ++i) EXPECT_EQ(norm(all[i]), out[at(i)]);
        for (float& value : out) value *= value;
        each([&](int i, int k) { return double{all[i][at(k)]} * all[i][at(k)]; });
        quadratic_forms(matrix, all, out);
        for (int i = 0; i < count; ++i) {
          double sum = 0, size = 0;
          for (int m = 0; m < width; ++m)
            for (int k = 0; k < width; ++k) {
              const double term = double{all[i][at(m)]} * matrix[m][at(k)] * all[i][at(k)];
              sum += term;
              size += std::abs(term);
            }
          expect_near(out[at(i)], sum, size);
        }
        std::vector<float> sum(at(width), 1);
        for (int i = 0; i < count; ++i) add_scaled(0.5F, all[i], sum);
        for (int k = 0; k < width; ++k) {
          double expected = 1, size = 1;
          for (int i = 0; i < count; ++i) {
            expected += 0.5 * all[i][at(k)];
            size += std::abs(0.5 * all[i][at(k)]);
          }
          expect_near(sum[at(k)], expected, size);
        }
      }
    }
  });
}

// A row's results do not depend on the rows beside it.
TEST_F(Vectors, TreatRowsAlike) {
  for_each_target([&] {
    std::vector<float> memory, m_memory;
    const Rows all = rows(19, 33, memory), matrix = rows(33, 33, m_memory);
    std::vector<float> together(19), one(1);
    quadratic_forms(matrix, all, together);
    for (int i = 0; i < all.count; ++i) {
      quadratic_forms(matrix, {all[i].data(), 1, all.width, all.stride}, one);
      EXPECT_EQ(one[0], together[at(i)]);
    }
  });
}

}  // namespace
}  // namespace palimpsest::testing
