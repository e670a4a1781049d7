#include "palimpsest/cache/view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace palimpsest::testing {
namespace {

TEST(Element, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f32_from_f16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(value))));
    } else {
      EXPECT_EQ(f16_from_f32(value), half);
    }
  }
}

TEST(Element, HalvesRoundToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {  // between two adjacent numbers, 0 .. 65504
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const float middle = (f32_from_f16(low) + f32_from_f16(high)) / 2;
    EXPECT_EQ(f16_from_f32(middle), bits % 2 == 0 ? low : high) << bits;
    EXPECT_EQ(f16_from_f32(std::nextafter(middle, 0.0f)), low) << bits;
    EXPECT_EQ(f16_from_f32(-std::nextafter(middle, 1e9f)), high | 0x8000) << bits;
  }
  EXPECT_EQ(f32_from_f16(f16_from_f32(1.0f)), 1.0f);
  EXPECT_EQ(f32_from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(f16_from_f32(65519.9f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f32_from_f16(1), std::ldexp(1.0f, -24));
}

TEST(Element, BrainFloatsRoundToNearestEven) {
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3f80);
  EXPECT_EQ(bf16_from_f32(1.00390625f), 0x3f80);  // half way: to the even one
  EXPECT_EQ(bf16_from_f32(1.01171875f), 0x3f82);
  EXPECT_EQ(bf16_from_f32(std::nextafter(1.00390625f, 2.0f)), 0x3f81);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Element, StoresWhereItLoads) {
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16}) {
    std::byte bytes[40] = {};
    kv_format(type).store(bytes, 3, 1.5f);
    kv_format(type).store(bytes, 4, -2.0f);
    EXPECT_EQ(kv_format(type).load(bytes, 2), 0.0f);
    EXPECT_EQ(kv_format(type).load(bytes, 3), 1.5f);
    EXPECT_EQ(kv_format(type).load(bytes, 4), -2.0f);
  }
}

}  // namespace
}  // namespace palimpsest::testing
