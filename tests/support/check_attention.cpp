#include "tests/support/check_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "palimpsest/attention/reference.h"
#include "palimpsest/cache/view.h"

namespace palimpsest::testing {
namespace {

// Compares two tiles of one format. A key rotated in f32 instead of f64 may differ by one unit in the last place.
double bytes_apart(std::span<const std::byte> a, std::span<const std::byte> b, CacheType type) {
  double max = 0;
  const KvFormat& format = kv_format(type);
  if (!format.elementwise()) {  // bytes or scales: few differ, by one
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) max += 1.0 / static_cast<double>(a.size());
    return max;
  }
  for (std::size_t i = 0; i < a.size() * kTile / static_cast<std::size_t>(format.tile_bytes); ++i) {
    const float x = format.load(a.data(), i), y = format.load(b.data(), i);
    if (std::isnan(x) && std::isnan(y)) continue;
    const double difference = std::abs(static_cast<double>(x) - y) / std::max(1.0, std::abs(static_cast<double>(y)));
    max = std::isnan(difference) ? INFINITY : std::max(max, difference);
  }
  return max;
}

// Of q3 and q2 a group's scale is fitted: a difference in the last place of a key may lead to another of two scales
// with equal errors, and so to other bytes of the group (14 of at least 160 in a tile).
double last_place(CacheType type) {
  if (type == CacheType::kQ3 || type == CacheType::kQ2) return 0.1;
  return type == CacheType::kF32 ? 1e-6 : type == CacheType::kF16 ? 0x1p-10 : type == CacheType::kBF16 ? 0x1p-7 : 1e-2;
}

}  // namespace

double max_magnitude(const std::vector<float>& x) {
  double max = 0;
  for (float value : x) max = std::max(max, std::abs(static_cast<double>(value)));
  return max;
}

double max_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    max = std::isnan(difference) ? INFINITY : std::max(max, difference);
  }
  return max;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    whole += static_cast<double>(b[i]) * b[i];
  }
  return whole == 0 ? difference : std::sqrt(difference / whole);
}

void run_cpu(const LayerStep& step, AttentionScratch& scratch, int threads) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { attention_cpu(step, scratch, t, threads); });
  attention_cpu(step, scratch, 0, threads);
  for (std::thread& t : others) t.join();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void check_attention(const RandomCacheOptions& options) {
  SCOPED_TRACE(::testing::Message() << options);
  RandomCache cache(options);
  const std::vector<std::byte> before = cache.bytes();
  insert_reference(cache.step());
  const std::vector<std::byte> expected_bytes = cache.bytes();

  AttentionScratch scratch;
  scratch.reserve(cache.step(), 5);
  std::vector<float> out;
  std::vector<std::vector<float>> weights;
  for (int threads : {5, 1, 2}) {
    cache.restore(before);
    cache.clear_results();
    run_cpu(cache.step(), scratch, threads);
    if (threads == 5) {
      out = cache.out();
      weights = cache.weights();
    }
    EXPECT_TRUE(same_bits(out, cache.out())) << threads << " threads";
    for (std::size_t i = 0; i < weights.size(); ++i)
      EXPECT_TRUE(same_bits(weights[i], cache.weights()[i])) << threads << " threads, weights";
  }
  const LayerView& layout = cache.step().cache[0];
  const std::size_t page = page_bytes(layout), keys = value_offset(layout);
  double coded_keys = 0, coded_values = 0;  // parts of a page, summed over pages
  for (std::size_t at = 0; at < before.size(); at += page) {
    const auto mine = std::span(cache.bytes()).subspan(at, page),
               expected = std::span(expected_bytes).subspan(at, page);
    const double of_keys = bytes_apart(mine.first(keys), expected.first(keys), layout.key_type),
                 of_values = bytes_apart(mine.subspan(keys), expected.subspan(keys), layout.value_type);
    ASSERT_LE(of_keys, last_place(layout.key_type));
    ASSERT_LE(of_values, last_place(layout.value_type));
    coded_keys += of_keys, coded_values += of_values;
  }

  const double pages = static_cast<double>(before.size() / page);
  ASSERT_LE(coded_keys, 0.1 + 1e-2 * pages);  // other scales are rare
  ASSERT_LE(coded_values, 0.1 + 1e-2 * pages);

  cache.clear_results();
  attend_reference(cache.step());  // over what the fast path stored
  if (options.rotation == Rotation::kMaterialized && options.type != CacheType::kF32) {
    // A key of the copy, rotated in f32, may be rounded to the other of two numbers.
    EXPECT_LE(relative_difference(out, cache.out()), last_place(options.type) / 4);
    return;
  }
  // With q8_0, queries or weights are rounded to 16 bits (attention/integers-inl.h); with keys of 4 bits
  // and fewer, queries to 8.
  const bool coded = !kv_format(layout.key_type).elementwise() || !kv_format(layout.value_type).elementwise();
  const double bits = kv_format(layout.key_type).bits();
  const double bound = bits < 4 ? 1.5e-2 : bits < 8 ? 1e-2 : coded ? 1e-4 : 1e-6;
  EXPECT_LE(relative_difference(out, cache.out()), bound);
  EXPECT_LE(max_distance(out, cache.out()), 4 * bound * max_magnitude(cache.out()));
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_LE(max_distance(weights[i], cache.weights()[i]), 4 * bound * max_magnitude(cache.weights()[i]))
        << "weights " << i;
}

void check_drafts(RandomCacheOptions options) {
  options.drafts = true;
  check_attention(options);
  SCOPED_TRACE(::testing::Message() << options);
  RandomCache cache(options);
  AttentionScratch scratch;
  scratch.reserve(cache.step(), 2);
  run_cpu(cache.step(), scratch, 2);
  const std::vector<float> together = cache.out();
  const std::vector<std::vector<float>> weights = cache.weights();

  const LayerStep& step = cache.step();
  const std::size_t heads = static_cast<std::size_t>(step.shape.kv_heads);
  for (int i = 0; i < step.sequences; ++i)
    for (int draft = 0; draft < step.tokens[i].count; ++draft) {
      const SequenceTokens& all = step.tokens[i];
      SequenceTokens alone = all;
      alone.first += draft;
      alone.relative += draft;
      alone.position += draft;
      if (alone.key_row != nullptr) alone.key_row += static_cast<std::ptrdiff_t>(draft) * step.shape.rope_dims;
      alone.count = 1;
      alone.drafts = false;
      LayerView layer = step.cache[i];
      std::vector<HeadPages> pages(layer.head, layer.head + heads);
      std::vector<SlotsView> slots;
      slots.reserve(heads);
      for (HeadPages& head : pages) {
        slots.push_back(*head.slots);
        slots.back().inserted += draft;
        slots.back().occupied -= all.count - 1 - draft;
        head.slots = &slots.back();
      }
      layer.head = pages.data();
      LayerStep one = step;
      one.cache = &layer;
      one.tokens = &alone;
      one.sequences = 1;
      if (one.rank_tiles != nullptr) one.rank_tiles += i;
      if (one.weights != nullptr) one.weights += static_cast<std::size_t>(i) * heads;
      cache.clear_results();
      AttentionScratch own;
      own.reserve(one, 2);
      run_cpu(one, own, 2);
      const auto row = static_cast<std::size_t>(step.out.token_stride);
      const auto of_draft = [&](const std::vector<float>& out) {
        return std::vector(
            out.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(alone.first)),
            out.begin() + static_cast<std::ptrdiff_t>(row * (static_cast<std::size_t>(alone.first) + 1)));
      };
      EXPECT_TRUE(same_bits(of_draft(together), of_draft(cache.out()))) << "draft " << draft << " of " << all.count;
      for (std::size_t h = 0; step.weights != nullptr && h < heads; ++h) {
        const auto head = static_cast<std::size_t>(i) * heads + h;
        const MergedView* const merged = slots[h].merged;
        const auto count = static_cast<std::ptrdiff_t>(slots[h].slots + (merged == nullptr ? 0 : merged->entries()));
        const auto first = weights[head].begin() + all.weights_stride * draft;
        EXPECT_TRUE(
            same_bits({first, first + count}, {cache.weights()[head].begin(), cache.weights()[head].begin() + count}))
            << "weights of draft " << draft << " of " << all.count << ", head " << h;
      }
    }
}

}  // namespace palimpsest::testing
