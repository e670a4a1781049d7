#include "palimpsest/speed/speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "palimpsest/core/error.h"
#include "palimpsest/model/model.h"
#include "palimpsest/speed/fill.h"

namespace palimpsest::testing {
namespace {

struct Random {
  std::shared_ptr<Model> model = Model::synthetic("tiny");
  std::shared_ptr<Decoder> decoder = std::make_shared<Decoder>(model, 1);
  Lockstep batch(const std::string& method, int sequences = 1) const {
    SessionOptions options;
    options.method = parse_method(method);
    return {decoder, options, sequences};
  }
};

std::size_t token_bytes(const Model& model) {  // in f16
  const HeadGeometry& g = model.hyper().geometry;
  return static_cast<std::size_t>(g.heads()) * static_cast<std::size_t>(g.layer(0).key_width + g.layer(0).value_width) *
         2;
}

TEST(Speed, DecodesAtTheDepthAsked) {
  Random r;
  for (const Fill fill : {Fill::kRandom, Fill::kPrompt}) {
    Lockstep batch = r.batch("full");
    const SpeedOptions options{.test = SpeedTest::kDecode, .depth = 300, .tokens = 8, .warm_up = 2, .fill = fill};
    const auto sample = measure_speed(batch, r.model->hyper().vocabulary, options);
    EXPECT_EQ(batch.session(0).cache().occupied(), 0);  // cleared
    EXPECT_GE(sample.cache_bytes, 310 * token_bytes(*r.model));
    EXPECT_LE(sample.cache_bytes, 400 * token_bytes(*r.model));
    EXPECT_GT(sample.tokens_per_second, 0);
    EXPECT_NEAR(sample.tokens_per_second * sample.seconds, 8, 1e-6);
    EXPECT_LE(sample.ms_p50, sample.ms_p99);
    EXPECT_EQ(sample.evicted, 0);
  }
}

TEST(Speed, ABudgetBoundsTheDepth) {
  Random r;
  Lockstep batch = r.batch("streaming:budget=64");
  const auto sample = measure_speed(batch, r.model->hyper().vocabulary, {.depth = 1000, .tokens = 16});
  EXPECT_EQ(sample.evicted, 16);
  EXPECT_EQ(sample.evictions, 16);
  EXPECT_LE(sample.cache_bytes, 256 * token_bytes(*r.model));
}

TEST(Speed, PrefillReadsOnePrompt) {
  Random r;
  Lockstep batch = r.batch("full");
  const auto sample =
      measure_speed(batch, r.model->hyper().vocabulary, {.test = SpeedTest::kPrefill, .depth = 16, .tokens = 100});
  EXPECT_GE(sample.cache_bytes, 116 * token_bytes(*r.model));
  EXPECT_GT(sample.tokens_per_second, 0);
}

TEST(Speed, ABatchIsThatManySequences) {
  Random r;
  for (const char* method : {"full", "streaming:budget=64", "h2o:budget=64", "streaming:budget=64,mechanism=shift"}) {
    Lockstep one = r.batch(method), four = r.batch(method, 4);
    const SpeedOptions options{.depth = 100, .tokens = 8};
    const auto a = measure_speed(one, r.model->hyper().vocabulary, options);
    const auto b = measure_speed(four, r.model->hyper().vocabulary, options);
    EXPECT_EQ(b.cache_bytes, 4 * a.cache_bytes) << method;
    EXPECT_EQ(b.evicted, a.evicted) << method;
    EXPECT_NEAR(b.tokens_per_second * b.seconds, 32, 1e-6);
  }
}

TEST(Speed, RefusesNothingToDo) {
  Random r;
  Lockstep batch = r.batch("full");
  EXPECT_THROW(measure_speed(batch, 512, {.tokens = 0}), Error);
}

// Every page holds normal numbers: no zeros, denormals or infinities.
TEST(Fill, WritesEveryPage) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16}) {
    CacheOptions options;
    options.geometry = HeadGeometry::uniform(2, 2, 32, 32, type);
    Cache cache(options);
    cache.insert(50);
    fill_pages_with_noise(cache, 7);
    for (int l = 0; l < 2; ++l) {
      const LayerView view = cache.view(l);
      for (int h = 0; h < 2; ++h) {
        double squares = 0;
        const std::size_t count = page_bytes(view) / static_cast<std::size_t>(kv_format(type).tile_bytes / kTile);
        for (std::size_t i = 0; i < count; ++i) {
          float value = 0;
          const std::byte* at = view.head[h].page[1] + i * static_cast<std::size_t>(kv_format(type).tile_bytes / kTile);
          std::uint16_t half = 0;
          std::memcpy(&half, at, 2);
          if (type == CacheType::kF32) {
            std::memcpy(&value, at, 4);
          } else if (type == CacheType::kBF16) {
            const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
            std::memcpy(&value, &bits, 4);
          } else {
            value = std::ldexp(static_cast<float>((half & 0x3FF) | 0x400), ((half >> 10) & 0x1F) - 25);
            if ((half & 0x7C00) == 0) value = 0;
          }
          squares += static_cast<double>(value) * static_cast<double>(value);
        }
        EXPECT_NEAR(squares / static_cast<double>(count), 1, 0.15);
      }
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
