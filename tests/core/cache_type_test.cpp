#include "palimpsest/core/cache_type.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(CacheType, IsReadAsItIsNamed) {
  EXPECT_STREQ(name_of(CacheType::kF32), "f32");
  EXPECT_STREQ(name_of(CacheType::kF16), "f16");
  EXPECT_STREQ(name_of(CacheType::kBF16), "bf16");
  EXPECT_STREQ(name_of(CacheType::kQ8_0), "q8_0");
  for (const CacheType type : kCacheTypes) EXPECT_EQ(parse_cache_type(name_of(type), "cache type"), type);
}

TEST(CacheType, RefusesOtherNames) {
  EXPECT_EQ(error_of([] { parse_cache_type("q9", "cache type"); }),
            "unknown cache type 'q9': use f32, f16, bf16, q8_0, q4_0, q4, q3 or q2");
}

TEST(CacheType, OneStandsForBoth) {
  const CacheTypes both = CacheType::kBF16, mixed(CacheType::kQ8_0, CacheType::kF16);
  EXPECT_EQ(both, CacheTypes(CacheType::kBF16, CacheType::kBF16));
  EXPECT_EQ(name_of(both), "bf16");
  EXPECT_EQ(flags_of(both), "--cache-type bf16");
  EXPECT_EQ(name_of(mixed), "q8_0/f16");
  EXPECT_EQ(flags_of(mixed), "--cache-type-k q8_0 --cache-type-v f16");
}

}  // namespace
}  // namespace palimpsest::testing
