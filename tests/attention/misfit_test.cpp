// Keys and values that do not fit their cache type are recorded: the first of each sequence, on every path.
#include "palimpsest/attention/misfit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/cache/view.h"
#include "tests/support/random_cache.h"

namespace palimpsest::testing {
namespace {

constexpr auto& kAll = kCacheTypes;

void run(const LayerStep& step, int threads) {
  AttentionScratch scratch;
  scratch.reserve(step, threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { attention_cpu(step, scratch, t, threads); });
  attention_cpu(step, scratch, 0, threads);
  for (std::thread& t : others) t.join();
}

TEST(Misfits, TheLargestNumberOfAType) {
  const float f16 = kv_format(CacheType::kF16).largest;
  EXPECT_EQ(f32_from_f16(f16_from_f32(f16)), 65504);
  EXPECT_TRUE(std::isinf(f32_from_f16(f16_from_f32(std::nextafter(f16, std::numeric_limits<float>::infinity())))));
  for (const CacheType type : kAll) EXPECT_LE(kv_format(type).largest, kLargestElement);
  constexpr float kDimensions = 1 << 20;
  EXPECT_TRUE(std::isfinite(kDimensions * kLargestElement * kLargestElement));
}

TEST(Misfits, AreOfTheirSequenceLayerAndHead) {
  for (const CacheType type : kAll)
    for (const int new_tokens : {1, 3, 200})
      for (const bool value : {false, true})
        for (const float factor : {1.0F, 1.01F, std::numeric_limits<float>::quiet_NaN()}) {
          RandomCacheOptions o;
          o.type = type;
          if (new_tokens == 3) {  // keys and values of different types; the one that does not fit has `type`
            o.type = value ? CacheType::kF32 : type;
            o.value_type = value ? type : CacheType::kF32;
          }
          o.sequences = 2;
          o.kv_heads = 3;
          o.group = 2;
          o.new_tokens = new_tokens;
          RandomCache cache(o);
          Misfits misfits;
          LayerStep step = cache.step();
          step.layer = 4;
          step.misfits = &misfits;
          run(step, 3);
          EXPECT_FALSE(misfits.any());

          const float number = kv_format(type).largest * factor;
          const int token = step.tokens[1].first + step.tokens[1].count - 1;
          const_cast<float*>((value ? step.v : step.k).at(token, 2))[37] = -number;
          run(step, 3);
          EXPECT_FALSE(misfits.of(0));
          const auto found = misfits.of(1);
          if (factor == 1) {
            EXPECT_FALSE(found) << static_cast<int>(type);
            continue;
          }
          ASSERT_TRUE(found);
          EXPECT_EQ(found->sequence, 1);
          EXPECT_EQ(found->layer, 4);
          EXPECT_EQ(found->kv_head, 2);
          EXPECT_EQ(found->value, value);
          if (std::isnan(factor))
            EXPECT_TRUE(std::isnan(found->magnitude));
          else
            EXPECT_EQ(found->magnitude, number);
          misfits.clear();
          EXPECT_FALSE(misfits.of(1));
        }
}

TEST(Misfits, TheFirstIsKeptWhateverTheirOrder) {
  const std::vector<Misfit> all = {{0, 2, 1, false, 5}, {0, 1, 3, true, 6}, {0, 1, 3, false, 7}, {0, 1, 3, false, 8}};
  for (std::size_t first = 0; first < all.size(); ++first) {
    Misfits misfits;
    for (std::size_t i = 0; i < all.size(); ++i) misfits.report(all[(first + i) % all.size()]);
    const auto found = misfits.of(0);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->layer, 1);
    EXPECT_FALSE(found->value);
    EXPECT_EQ(found->magnitude, 8);
    EXPECT_FALSE(misfits.of(1));
  }
}

}  // namespace
}  // namespace palimpsest::testing
