#include "palimpsest/matmul/panels.h"
#include "tests/matmul/converted.h"
#include "tests/support/missing_feature.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace palimpsest::testing {
namespace {

struct Case {
  ggml_type type;
  int columns;
};

class PanelsOf : public ::testing::TestWithParam<ggml_type> {
 protected:
  static constexpr int kRows = 48, kColumns = 768;

  void SetUp() override {
    if (!Panels::supports(GetParam(), kRows, kColumns)) GTEST_SKIP() << needs_panels();
  }

  // Weights with a realistic spread: rows and groups of different magnitude.
  std::vector<std::byte> weights(std::vector<float>& exact) {
    std::vector<float> plain(kRows * kColumns);
    for (int i = 0; i < std::ssize(plain); ++i)
      plain[i] = normal_(random_) * static_cast<float>(1 + i / 32 % 5) + (i / kColumns % 3 == 0 ? 0.5F : 0.0F);
    std::vector<std::byte> out(ggml_row_size(GetParam(), kColumns) * kRows);
    ggml_quantize_chunk(GetParam(), plain.data(), out.data(), 0, kRows, kColumns, nullptr);
    exact.resize(plain.size());
    if (GetParam() == GGML_TYPE_F32)
      std::ranges::copy(plain, exact.begin());
    else
      ggml_get_type_traits(GetParam())->to_float(out.data(), exact.data(), std::ssize(exact));
    return out;
  }
  std::vector<float> activations(int tokens) {
    std::vector<float> out(static_cast<std::size_t>(tokens) * kColumns);
    for (float& x : out) x = normal_(random_) + 0.3F;
    return out;
  }

  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

TEST_P(PanelsOf, HoldTheWeightsExactly) {
  std::vector<float> exact, row(kColumns);
  const auto data = weights(exact);
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  EXPECT_LE(panels.bytes(), data.size() * 105 / 100);
  for (int r = 0; r < kRows; ++r) {
    panels.dequantize_row(r, row.data());
    for (int k = 0; k < kColumns; ++k) ASSERT_FLOAT_EQ(row[k], exact[r * kColumns + k]) << r << " " << k;
  }
}

TEST_P(PanelsOf, MultiplyAsInDoublePrecision) {
  std::vector<float> exact;
  const auto data = weights(exact);
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  for (const int tokens : {1, 2, 5, 12, 31}) {
    const auto x = activations(tokens);
    const Converted q(panels, x);
    std::vector<float> y(static_cast<std::size_t>(tokens) * (kRows + 3), NAN);
    panels.multiply(0, panels.panels(), q.row(), tokens, y.data(), kRows + 3);
    for (int t = 0; t < tokens; ++t) {
      for (int r = 0; r < kRows; ++r) {
        double sum = 0, size = 0;
        for (int k = 0; k < kColumns; ++k) {
          const double product = static_cast<double>(exact[r * kColumns + k]) * q.value(t, k);
          sum += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(y[t * (kRows + 3) + r], sum, 2e-6 * size) << tokens << " " << t << " " << r;
      }
      for (int r = kRows; r < kRows + 3; ++r) ASSERT_TRUE(std::isnan(y[t * (kRows + 3) + r]));
    }
  }
}

TEST_P(PanelsOf, ATokensResultDependsOnNothingBesideIt) {
  std::vector<float> exact;
  const auto data = weights(exact);
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  constexpr int kTokens = 97;
  const Converted q(panels, activations(kTokens));
  std::vector<float> all(kTokens * kRows), one(kRows);
  panels.multiply(0, panels.panels(), q.row(), kTokens, all.data(), kRows);
  for (int t = 0; t < kTokens; ++t) {
    for (int p = 0; p < panels.panels(); ++p)
      panels.multiply(p, p + 1, q.row(t), 1, one.data() + p * Panels::kRows, kRows);
    for (int r = 0; r < kRows; ++r) ASSERT_EQ(one[r], all[t * kRows + r]) << t << " " << r;
  }
}

// A panel is filled up with rows of zeros, which are not written.
TEST_P(PanelsOf, RowsThatFillNoPanel) {
  std::vector<float> exact;
  const auto data = weights(exact);
  const Panels all(GetParam(), kRows, kColumns, data.data());
  for (const int rows : {1, 15, 37}) {
    const Panels some(GetParam(), rows, kColumns, data.data());
    ASSERT_EQ(some.panels(), (rows + 15) / 16);
    for (const int tokens : {1, 7, 16, 50}) {
      const Converted q(all, activations(tokens));
      std::vector<float> y(static_cast<std::size_t>(tokens) * kRows), part(y.size(), NAN);
      all.multiply(0, all.panels(), q.row(), tokens, y.data(), kRows);
      some.multiply(0, some.panels(), q.row(), tokens, part.data(), kRows);
      for (int i = 0; i < std::ssize(y); ++i) {
        if (i % kRows < rows)
          ASSERT_EQ(part[i], y[i]) << rows << " rows, " << tokens << " tokens, " << i;
        else
          ASSERT_TRUE(std::isnan(part[i])) << rows << " rows, " << tokens << " tokens, " << i;
      }
    }
  }
}

// Damaged models and overflows are noticed later by their results: a product must not lose them.
TEST_P(PanelsOf, WhatIsNotFiniteStaysSo) {
  std::vector<float> exact;
  const auto data = weights(exact);
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  for (const int tokens : {2, 13}) {
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      auto x = activations(tokens);
      x[static_cast<std::size_t>(random_() % kColumns)] = bad;
      const Converted q(panels, x);
      std::vector<float> y(static_cast<std::size_t>(tokens) * kRows);
      panels.multiply(0, panels.panels(), q.row(), tokens, y.data(), kRows);
      for (int i = 0; i < std::ssize(y); ++i) ASSERT_EQ(std::isfinite(y[i]), i >= kRows) << bad << " " << i;
    }
  }
}

// 127 / max is infinite here.
TEST_P(PanelsOf, TinyNumbersAreSmallProducts) {
  std::vector<float> exact;
  const auto data = weights(exact);
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  std::vector<float> x(kColumns, 1e-38F), y(kRows);
  x[3] = 0;
  x[4] = -1e-40F;
  const Converted q(panels, x);
  panels.multiply(0, panels.panels(), q.row(), 1, y.data(), kRows);
  for (const float value : y) ASSERT_LT(std::abs(value), 1e-30F);
}

INSTANTIATE_TEST_SUITE_P(Types, PanelsOf,
                         ::testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                           GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4,
                                           GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

TEST(Activations, AreRoundedToTheirGroup) {
  if (!Panels::supports(GGML_TYPE_Q8_0, 16, 32)) GTEST_SKIP() << needs_panels();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 7);
  for (float& value : x) value = 100 * normal(random);
  std::fill_n(x.begin() + 64, 32, 0.0F);
  const std::vector<std::byte> weights(16 * 34);
  const Panels panels(GGML_TYPE_Q8_0, 16, 32, weights.data());
  std::vector<ActivationGroup> groups(7);
  panels.convert(x.data(), static_cast<int>(x.size()), reinterpret_cast<std::byte*>(groups.data()));
  for (int g = 0; g < 7; ++g) {
    int sums[2] = {};
    for (int k = 0; k < 32; ++k) {
      EXPECT_LE(std::abs(groups[g].code[k] * groups[g].scale - x[32 * g + k]), groups[g].scale * 0.501F);
      sums[k / 16] += groups[g].code[k];
    }
    EXPECT_EQ(groups[g].offset_8, -8 * (sums[0] + sums[1]));
    EXPECT_EQ(groups[g].offset_128, -128 * (sums[0] + sums[1]));
    EXPECT_EQ(groups[g].half_offset_32[0], -32 * sums[0]);
    EXPECT_EQ(groups[g].half_offset_32[1], -32 * sums[1]);
    EXPECT_FLOAT_EQ(groups[g].negative_total, groups[g].scale * static_cast<float>(-sums[0] - sums[1]));
  }
}

}  // namespace
}  // namespace palimpsest::testing
