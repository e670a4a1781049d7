#include "palimpsest/bench/speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "palimpsest/bench/fill.h"
#include "palimpsest/core/error.h"
#include "palimpsest/model/model.h"

namespace palimpsest {
namespace {

struct Random {
  std::shared_ptr<Model> model = Model::synthetic("tiny");
  std::shared_ptr<Decoder> decoder = std::make_shared<Decoder>(model, 1);
  Session session(const std::string& method) const {
    SessionOptions options;
    options.method = parse_method(method);
    return {decoder, options};
  }
};

TEST(Speed, DecodesAtTheDepthAsked) {
  Random r;
  for (const Fill fill : {Fill::kRandom, Fill::kPrompt}) {
    Session session = r.session("full");
    const SpeedOptions options{.test = SpeedTest::kDecode, .depth = 300, .tokens = 8, .warm_up = 2, .fill = fill};
    const auto sample = measure_speed(session, r.model->hyper().vocabulary, options);
    EXPECT_EQ(session.cache().live(), 310);
    EXPECT_GT(sample.tokens_per_second, 0);
    EXPECT_NEAR(sample.tokens_per_second * sample.seconds, 8, 1e-6);
    EXPECT_LE(sample.ms_p50, sample.ms_p99);
    EXPECT_EQ(sample.evicted, 0);
  }
}

TEST(Speed, ABudgetBoundsTheDepth) {
  Random r;
  Session session = r.session("streaming:budget=64");
  const auto sample = measure_speed(session, r.model->hyper().vocabulary, {.depth = 1000, .tokens = 16});
  EXPECT_EQ(session.cache().live(), 64);
  EXPECT_EQ(sample.evicted, 16);
  EXPECT_EQ(session.position(), 1018);
}

TEST(Speed, PrefillReadsOnePrompt) {
  Random r;
  Session session = r.session("full");
  const auto sample =
      measure_speed(session, r.model->hyper().vocabulary, {.test = SpeedTest::kPrefill, .depth = 16, .tokens = 100});
  EXPECT_EQ(session.cache().live(), 116);
  EXPECT_GT(sample.tokens_per_second, 0);
}

TEST(Speed, RefusesNothingToDo) {
  Random r;
  Session session = r.session("full");
  EXPECT_THROW(measure_speed(session, 512, {.tokens = 0}), Error);
}

// Every page holds numbers of ordinary size: no zeros left from the system, no denormals, no infinities.
TEST(Fill, WritesEveryPage) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16}) {
    CacheOptions options;
    options.layers = 2;
    options.kv_heads = 2;
    options.head_dim = options.value_dim = 32;
    options.type = type;
    Cache cache(options);
    cache.insert(50);
    fill_pages_with_noise(cache, 7);
    for (int l = 0; l < 2; ++l) {
      const LayerView view = cache.view(l);
      for (int h = 0; h < 2; ++h) {
        double squares = 0;
        const std::size_t count = page_bytes(view) / static_cast<std::size_t>(bytes_per_element(type));
        for (std::size_t i = 0; i < count; ++i) {
          float value = 0;
          const std::byte* at = view.head[h].page[1] + i * static_cast<std::size_t>(bytes_per_element(type));
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
}  // namespace palimpsest
