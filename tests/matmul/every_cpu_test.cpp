// The bits of products, on every CPU: sums of integers in plain loops, and the order in which the rest is added.
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "palimpsest/matmul/panels.h"
#include "tests/matmul/converted.h"
#include "tests/support/missing_feature.h"

namespace palimpsest::testing {
namespace {

constexpr int kRows = 32, kColumns = 512;

void set_half(std::byte* at, float value) {
  const ggml_fp16_t half = ggml_fp32_to_fp16(value);
  std::memcpy(at, &half, 2);
}
float half_at(const std::byte* at) {
  ggml_fp16_t half;
  std::memcpy(&half, at, 2);
  return ggml_fp16_to_fp32(half);
}

// A row's weights: scale * code - min.
struct Row {
  std::vector<int> code;
  std::vector<float> scale, min;  // of each column
};

class ProductsOf : public ::testing::TestWithParam<ggml_type> {
 protected:
  void SetUp() override {
    if (!Panels::supports(GetParam(), kRows, kColumns)) GTEST_SKIP() << needs_panels();
  }

  std::size_t block_bytes() const { return ggml_type_size(GetParam()); }
  int block_columns() const { return static_cast<int>(ggml_blck_size(GetParam())); }

  // Where a block has its f16 scale.
  std::size_t scale_at() const {
    return GetParam() == GGML_TYPE_Q6_K   ? 208
           : GetParam() == GGML_TYPE_Q3_K ? 108
           : GetParam() == GGML_TYPE_Q2_K ? 80
                                          : 0;
  }
  // Scales of 16 columns.
  bool of_halves() const {
    return GetParam() == GGML_TYPE_Q2_K || GetParam() == GGML_TYPE_Q3_K || GetParam() == GGML_TYPE_Q6_K;
  }
  // f16 numbers that are added.
  bool with_sum() const { return GetParam() == GGML_TYPE_Q4_1 || GetParam() == GGML_TYPE_Q5_1; }
  bool with_min() const {
    return GetParam() == GGML_TYPE_Q2_K || GetParam() == GGML_TYPE_Q4_K || GetParam() == GGML_TYPE_Q5_K;
  }
  std::size_t min_at() const { return scale_at() + 2; }
  // The bytes of codes, in one piece: Q3_K's third bits lie before them.
  std::pair<std::size_t, std::size_t> codes_at() const {
    switch (GetParam()) {
      case GGML_TYPE_Q2_K:
        return {16, 80};
      case GGML_TYPE_Q3_K:
        return {0, 96};
      case GGML_TYPE_Q6_K:
        return {0, 192};
      default:
        return {block_columns() > 32 ? 16 : with_sum() ? 4 : 2, block_bytes()};
    }
  }
  int largest_code() const { return GetParam() == GGML_TYPE_Q2_K ? 3 : GetParam() == GGML_TYPE_Q4_K ? 15 : 31; }
  // The scale of 16 columns of Q3_K.
  static int scale_of_half(const std::vector<std::byte>& block, int half) {
    const auto packed = [&](int i) { return static_cast<int>(block[96 + static_cast<std::size_t>(i)]); };
    const int low = half < 8 ? packed(half) & 15 : packed(half - 8) >> 4;
    return (low | (packed(8 + half % 4) >> (half / 4 * 2) & 3) << 4) - 32;
  }

  std::vector<float> values(const std::vector<std::byte>& block) const {
    std::vector<float> out(static_cast<std::size_t>(block_columns()));
    ggml_get_type_traits(GetParam())->to_float(block.data(), out.data(), block_columns());
    return out;
  }

  // Random codes; in every fourth block all are the largest.
  std::vector<std::byte> random_block() {
    std::vector<std::byte> out(block_bytes());
    for (std::byte& b : out) b = static_cast<std::byte>(random_());
    if (GetParam() == GGML_TYPE_Q8_0)  // -128 is no code
      std::ranges::replace(out, std::byte{0x80}, std::byte{0x81});
    if (random_() % 4 == 0) {
      const auto [first, last] = codes_at();
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(first), out.begin() + static_cast<std::ptrdiff_t>(last),
                GetParam() == GGML_TYPE_Q8_0 ? std::byte{0x7F} : std::byte{0xFF});
    }
    if (GetParam() == GGML_TYPE_MXFP4)
      out[0] = static_cast<std::byte>(120 + random_() % 10);
    else
      set_half(&out[scale_at()], 0.001F * static_cast<float>(1 + random_() % 50));
    if (with_min() || with_sum()) set_half(&out[min_at()], 0.002F * static_cast<float>(1 + random_() % 50));
    return out;
  }

  // Appends a block's codes, scales and mins, by what ggml makes of it with scales of 1.
  void append(const std::vector<std::byte>& block, Row& row) const {
    const float scale = GetParam() == GGML_TYPE_MXFP4 ? std::ldexp(1.0F, static_cast<int>(block[0]) - 128)
                                                      : half_at(&block[scale_at()]);
    auto one = block, largest = block, mins = block;
    if (GetParam() == GGML_TYPE_MXFP4)
      one[0] = std::byte{128};
    else
      set_half(&one[scale_at()], 1);
    if (with_sum()) set_half(&one[2], 0);
    if (with_min()) {
      set_half(&one[min_at()], 0);
      largest = one;
      const auto [first, last] = codes_at();
      std::fill(largest.begin() + static_cast<std::ptrdiff_t>(first),
                largest.begin() + static_cast<std::ptrdiff_t>(last), std::byte{0xFF});
      set_half(&mins[scale_at()], 0);
      set_half(&mins[min_at()], 1);
    }
    const auto scaled = values(one), of_largest = values(largest), minus = values(mins);
    for (int k = 0; k < block_columns(); ++k) {
      float inner = 1;
      if (with_min()) inner = of_largest[k] / static_cast<float>(largest_code());
      if (GetParam() == GGML_TYPE_Q6_K) inner = static_cast<float>(static_cast<std::int8_t>(block[192 + k / 16]));
      if (GetParam() == GGML_TYPE_Q3_K) inner = static_cast<float>(scale_of_half(block, k / 16));
      if (GetParam() == GGML_TYPE_IQ4_XS) {
        const int g = k / 32, low = static_cast<int>(block[4 + g / 2]) >> 4 * (g % 2) & 15,
                  high = static_cast<int>(block[2 + g / 4]) >> 2 * (g % 4) & 3;
        inner = static_cast<float>((low | high << 4) - 32);
      }
      row.code.push_back(inner == 0 ? 0 : static_cast<int>(scaled[k] / inner));
      row.scale.push_back(scale * inner);
      row.min.push_back(with_min() ? half_at(&block[min_at()]) * -minus[k] : with_sum() ? -half_at(&block[2]) : 0);
    }
  }

  float expected(const Row& row, const ActivationGroup* x) const {
    const int part = of_halves() ? 16 : 32;
    const auto sum_of = [&](int first, const auto& factor) {
      int sum = 0;
      for (int k = first; k < first + part; ++k) sum += factor(k) * x[k / 32].code[k % 32];
      return sum;
    };
    float result = 0;
    for (int g = 0; g < kColumns; g += 32) {
      const float scale = x[g / 32].scale;
      for (int k = g; k < g + 32; k += part)
        result =
            std::fma(static_cast<float>(sum_of(k, [&](int i) { return row.code[i]; })), row.scale[k] * scale, result);
      for (int k = g; (with_min() || with_sum()) && k < g + 32; k += part)
        result = std::fma(row.min[k], scale * static_cast<float>(-sum_of(k, [](int) { return 1; })), result);
    }
    return result;
  }

  std::mt19937 random_{11};
};

TEST_P(ProductsOf, HaveTheBitsOfPlainLoops) {
  std::vector<std::byte> data;
  std::vector<Row> rows(kRows);
  for (Row& row : rows) {
    for (int k = 0; k < kColumns; k += block_columns()) {
      const auto block = random_block();
      append(block, row);
      data.insert(data.end(), block.begin(), block.end());
    }
  }
  const Panels panels(GetParam(), kRows, kColumns, data.data());
  for (const int tokens : {1, 3, 7, 11, 15, 16, 31, 32, 100, 131}) {
    std::vector<float> x(static_cast<std::size_t>(tokens) * kColumns);
    for (std::size_t i = 0; i < x.size(); ++i)  // some groups have only the largest codes
      x[i] = i / 32 % 3 == 0 ? (i / 32 % 2 == 0 ? 1.0F : -1.0F) : static_cast<float>(random_() % 2001) * 0.001F - 1;
    const Converted q(panels, x);
    std::vector<float> y(static_cast<std::size_t>(tokens) * kRows);
    panels.multiply(0, panels.panels(), q.row(), tokens, y.data(), kRows);
    for (int t = 0; t < tokens; ++t)
      for (int r = 0; r < kRows; ++r)
        ASSERT_EQ(y[t * kRows + r], expected(rows[r], reinterpret_cast<const ActivationGroup*>(q.row(t))))
            << tokens << " tokens, token " << t << ", row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ProductsOf,
                         ::testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                           GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4,
                                           GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

// Floats: sums of 64 columns, in their order.
TEST(FloatProducts, HaveTheBitsOfPlainLoops) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    if (!Panels::supports(type, kRows, kColumns)) GTEST_SKIP() << needs_panels();
    SCOPED_TRACE(ggml_type_name(type));
    std::vector<float> plain(kRows * kColumns), exact(plain.size());
    for (float& w : plain) w = normal(random);
    std::vector<std::byte> data(ggml_row_size(type, kColumns) * kRows);
    ggml_quantize_chunk(type, plain.data(), data.data(), 0, kRows, kColumns, nullptr);
    if (type == GGML_TYPE_F32)
      exact = plain;
    else
      ggml_get_type_traits(type)->to_float(data.data(), exact.data(), std::ssize(exact));
    const Panels panels(type, kRows, kColumns, data.data());
    if (panels.form() == ActivationForm::kBf16) continue;  // the CPU's own order of pairs
    for (const int tokens : {1, 3, 5, 13, 31}) {
      std::vector<float> x(static_cast<std::size_t>(tokens) * kColumns);
      for (float& value : x) value = normal(random);
      const Converted converted(panels, x);
      std::vector<float> y(static_cast<std::size_t>(tokens) * kRows);
      panels.multiply(0, panels.panels(), converted.row(), tokens, y.data(), kRows);
      for (int t = 0; t < tokens; ++t) {
        for (int r = 0; r < kRows; ++r) {
          float total = 0;
          for (int first = 0; first < kColumns; first += 64) {
            float sum = 0;
            for (int k = first; k < first + 64; ++k) sum = std::fma(exact[r * kColumns + k], x[t * kColumns + k], sum);
            total += sum;
          }
          ASSERT_EQ(y[t * kRows + r], total) << tokens << " tokens, token " << t << ", row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
