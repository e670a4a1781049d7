// The fast path against the oracle, over random combinations of everything that a step can ask for.
#include "palimpsest/attention/cpu.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "palimpsest/attention/reference.h"
#include "palimpsest/cache/view.h"
#include "tests/support/random_cache.h"

namespace palimpsest::testing {
namespace {

void run_cpu(const AttentionStep& step, AttentionScratch& scratch, int threads) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { attention_cpu(step, scratch, t, threads); });
  attention_cpu(step, scratch, 0, threads);
  for (std::thread& t : others) t.join();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

double largest(const std::vector<float>& x) {
  double max = 0;
  for (float value : x) max = std::max(max, std::abs(static_cast<double>(value)));
  return max;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    max = std::isnan(difference) ? INFINITY : std::max(max, difference);
  }
  return max;
}

// sqrt(sum of squared differences / sum of squares)
double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    whole += static_cast<double>(b[i]) * b[i];
  }
  return whole == 0 ? difference : std::sqrt(difference / whole);
}

// Stored numbers may differ by one in the last place where a key was rotated in f32 instead of f64. Of tiles of one
// format.
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

double last_place(CacheType type) {
  return type == CacheType::kF32 ? 1e-6 : type == CacheType::kF16 ? 0x1p-10 : type == CacheType::kBF16 ? 0x1p-7 : 1e-2;
}

void check(const RandomCacheOptions& options) {
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
  for (std::size_t at = 0; at < before.size(); at += page) {
    const auto mine = std::span(cache.bytes()).subspan(at, page),
               expected = std::span(expected_bytes).subspan(at, page);
    ASSERT_LE(bytes_apart(mine.first(keys), expected.first(keys), layout.key_type), last_place(layout.key_type));
    ASSERT_LE(bytes_apart(mine.subspan(keys), expected.subspan(keys), layout.value_type),
              last_place(layout.value_type));
  }

  cache.clear_results();
  attend_reference(cache.step());  // over what the fast path stored
  if (options.rotation == Rotation::kMaterialized && options.type != CacheType::kF32) {
    // A key of the copy that was rotated in f32 may be rounded to the other side.
    EXPECT_LE(relative(out, cache.out()), last_place(options.type) / 4);
    return;
  }
  EXPECT_LE(relative(out, cache.out()), 1e-6);
  EXPECT_LE(distance(out, cache.out()), 4e-6 * largest(cache.out()));
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_LE(distance(weights[i], cache.weights()[i]), 4e-6 * largest(cache.weights()[i])) << "weights " << i;
}

constexpr CacheType kTypes[] = {CacheType::kF32, CacheType::kF16, CacheType::kBF16};

TEST(AttentionCpu, EveryWidthAndGroup) {
  unsigned seed = 0;
  for (CacheType type : kTypes) {
    for (int head_dim : {8, 64, 80, 96, 100, 128, 256}) {
      for (int group : {1, 2, 3, 4, 7, 8, 16}) {
        RandomCacheOptions o;
        o.type = type;
        o.kv_heads = 1;
        o.group = group;
        o.head_dim = o.value_dim = head_dim;
        o.old_tokens = 150;
        o.empty_slots = 0.1;
        o.seed = ++seed;
        check(o);
      }
    }
  }
}

TEST(AttentionCpu, LongDecodeIsCutIntoSplits) {
  for (CacheType type : kTypes) {
    RandomCacheOptions o;
    o.type = type;
    o.group = 4;
    o.old_tokens = 3000;
    o.page_size = 64;
    o.weights = true;
    check(o);
    o.empty_slots = 0.3;
    o.new_tokens = 5;
    o.weights_queries = 2;
    check(o);
  }
}

#ifdef PALIMPSEST_SANITIZED  // these compute the double-precision reference ten times as slowly
constexpr unsigned kRandomSteps = 40, kOneIn = 3;
#else
constexpr unsigned kRandomSteps = 300, kOneIn = 1;
#endif

// Whether combination `seed` of a test with hundreds of them is left out: under a sanitizer, two of three.
bool left_out(unsigned seed) {
  return (seed * 2654435761U >> 20) % kOneIn != 0;
}

TEST(AttentionCpu, PromptChunks) {
  for (CacheType type : kTypes) {
    for (int old_tokens : {0, 700}) {
      RandomCacheOptions o;
      o.type = type;
      o.group = 3;
      o.old_tokens = old_tokens;
      o.new_tokens = kOneIn == 1 ? 200 : 70;
      o.rotation = Rotation::kOnWrite;
      o.rope = RopeKind::kHalves;
      o.rope_dims = 64;
      check(o);
      o.weights = true;
      check(o);
      o.weights_queries = 30;
      check(o);
      o.sums = true;
      check(o);
      o.merged = 300;
      check(o);
    }
  }
}

// The greatest of a query group, summed over queries or not: kept by few rows, computed again for many, over splits.
TEST(AttentionCpu, GreatestWeights) {
  unsigned seed = 0;
  for (const WeightReduction as : {WeightReduction::kMaxOverGroup, WeightReduction::kMaxOverAll})
    for (const CacheType type : kTypes)
      for (const int group : {1, 3, 4, 8})
        for (const int new_tokens : {1, 2, 5, 90}) {
          if (left_out(++seed)) continue;
          RandomCacheOptions o;
          o.type = type;
          o.group = group;
          o.old_tokens = new_tokens == 1 ? 1400 : 300;
          o.new_tokens = new_tokens;
          o.empty_slots = 0.2;
          o.weights = true;
          o.weight_reduction = as;
          o.seed = seed;
          check(o);
          o.weights_queries = 2;
          check(o);
        }
}

// Merged tokens are never expanded, and are met as if they were: classes of one and of many tokens, few and many
// queries.
TEST(AttentionCpu, MergedTokens) {
  unsigned seed = 100;
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0})
    for (const int merged : {1, 100, 768})
      for (const int new_tokens : {1, 3, 90})
        for (const int group : {1, 3, 4, 8}) {
          if (left_out(++seed)) continue;
          RandomCacheOptions o;
          o.seed = seed;
          o.type = type;
          o.kv_heads = 2;
          o.group = group;
          o.old_tokens = 255;
          o.new_tokens = new_tokens;
          o.page_size = 64;
          o.own_slots = seed % 2 == 0;
          o.empty_slots = seed % 3 == 0 ? 0.2 : 0;
          o.merged = merged;
          o.own_positions = seed % 7 < 2;
          o.rotation = Rotation::kOnWrite;
          o.rope = RopeKind::kHalves;
          o.rope_dims = 64;
          o.weights = seed % 5 > 0;
          o.sums = seed % 5 > 1;
          o.weights_queries = 32;
          check(o);
          if (HasFailure()) return;
        }
}

// Anything with anything.
TEST(AttentionCpu, RandomSteps) {
  std::mt19937 random(2026);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  for (unsigned n = 0; n < kRandomSteps; ++n) {
    RandomCacheOptions o;
    o.seed = n + 1;
    o.type = one_of(CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0);
    o.value_type = one_of(CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0);
    const bool scaled = o.type == CacheType::kQ8_0;
    o.kv_heads = one_of(1, 2, 3);
    o.group = one_of(1, 2, 3, 4, 5, 8);
    o.head_dim = scaled ? one_of(32, 64, 96, 128) : one_of(8, 20, 64, 80);
    o.value_dim = o.value_type == CacheType::kQ8_0 ? one_of(32, 64, 96) : one_of(o.head_dim, o.head_dim, 24, 100);
    o.page_size = one_of(16, 16, 48, 64, 128);
    o.sequences = one_of(1, 1, 2, 3);
    o.old_tokens = one_of(0, 1, 30, 100, 600);
    o.new_tokens = one_of(1, 1, 2, 7, 17, 64);
    o.empty_slots = one_of(0.0, 0.0, 0.2, 0.8);
    o.null_pages = one_of(0.0, 0.0, 0.3);
    o.own_slots = one_of(false, true);
    o.own_budgets = o.own_slots && one_of(false, true);
    o.rotation =
        one_of(Rotation::kNever, Rotation::kOnWrite, Rotation::kOnRead, Rotation::kOnRead, Rotation::kMaterialized);
    o.rope = one_of(RopeKind::kNone, RopeKind::kPairs, RopeKind::kHalves);
    o.rope_dims = o.rope == RopeKind::kNone ? 0 : one_of(o.head_dim, o.head_dim / 2);
    if (scaled && o.rotation == Rotation::kMaterialized) o.rotation = Rotation::kOnRead;
    o.rotated_half = !scaled && o.rotation == Rotation::kOnRead && o.rope != RopeKind::kNone && one_of(false, true);
    o.rank_tiles = !o.own_slots && one_of(false, true);
    o.window = one_of(INT32_MAX, INT32_MAX, 20, 150);
    o.sinks = one_of(0, 4);
    o.base = one_of(0, 1'000'000);
    o.two_queries = o.sinks > 0 && one_of(false, true);
    o.local = one_of(INT32_MAX, INT32_MAX, 1, 50, 400);
    o.soft_cap = one_of(0.0F, 0.0F, 0.5F, 20.0F);
    o.alibi = one_of(false, false, true);
    o.rank_distance = o.alibi && one_of(false, true);
    o.bias = one_of(false, false, true);
    o.sink_logits = one_of(false, false, true);
    o.rank_keys = o.rotation == Rotation::kOnWrite && one_of(false, true);
    o.weights = one_of(false, true);
    o.weights_queries = one_of(INT32_MAX, 1, 5);
    o.sums = o.weights && one_of(false, true);
    if ((o.rotation == Rotation::kNever || o.rotation == Rotation::kOnWrite) && !o.two_queries)
      o.merged = one_of(0, 1, 40, 500), o.own_positions = one_of(false, true);
    check(o);
    if (HasFailure()) return;
  }
}

// A soft cap and a window of the layer's own, with every other rule that meets them.
TEST(AttentionCpu, SoftCapsAndLocalWindows) {
  unsigned seed = 0;
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0}) {
    for (int new_tokens : {1, 3, 90}) {
      for (std::int32_t local : {1, 77, 900, INT32_MAX}) {
        for (float soft_cap : {0.0F, 0.3F, 30.0F}) {
          if (left_out(++seed)) continue;
          RandomCacheOptions o;
          o.seed = seed;
          o.type = type;
          o.group = 3;
          o.old_tokens = 700;
          o.new_tokens = new_tokens;
          o.base = 0;
          o.local = local;
          o.soft_cap = soft_cap;
          o.weights = true;
          o.alibi = seed % 2 == 0;
          o.own_slots = seed % 3 == 0;
          o.empty_slots = seed % 4 == 0 ? 0.1 : 0;
          if (seed % 5 < 3) o.rope = RopeKind::kHalves, o.rope_dims = 64;
          const bool half = type != CacheType::kQ8_0 && seed % 5 == 2;
          o.rotation = seed % 5 == 0 ? Rotation::kOnWrite : half ? Rotation::kMaterialized : Rotation::kOnRead;
          o.rotated_half = type != CacheType::kQ8_0 && seed % 5 == 1;
          if (seed % 7 > 3) o.sinks = 4, o.window = seed % 7 == 4 ? INT32_MAX : 200, o.two_queries = seed % 7 == 6;
          check(o);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Biases of slots and sink logits: every format, one query over splits, few queries (weights kept), many (recomputed),
// merged tokens, with soft caps, ALiBi, windows and two queries.
TEST(AttentionCpu, BiasesAndSinkLogits) {
  unsigned seed = 300;
  for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0})
    for (int new_tokens : {1, 3, 90})
      for (int merged : {0, 100})
        for (int what : {1, 2, 3}) {
          RandomCacheOptions o;
          o.seed = ++seed;
          o.type = type;
          o.group = 1 + static_cast<int>(seed % 4);
          o.old_tokens = new_tokens == 1 ? 1400 : 300;
          o.new_tokens = new_tokens;
          o.own_slots = seed % 2 == 0;
          o.empty_slots = seed % 3 == 0 ? 0.2 : 0;
          o.bias = (what & 1) != 0;
          o.sink_logits = (what & 2) != 0;
          o.weights = true;
          o.weights_queries = seed % 5 == 0 ? INT32_MAX : 2;
          o.sums = seed % 5 == 1;
          check(o);
          o.merged = merged;
          o.rope = RopeKind::kHalves;
          o.rope_dims = 64;
          o.rotation = Rotation::kOnWrite;
          o.own_positions = seed % 3 == 1;
          o.soft_cap = seed % 4 == 1 ? 2 : 0;
          o.alibi = seed % 4 < 2;
          if (merged == 0) o.sinks = 4, o.window = 150, o.two_queries = seed % 2 == 1;
          if (merged == 0 && seed % 5 > 2) o.weight_reduction = WeightReduction::kMaxOverGroup;
          check(o);
          if (HasFailure()) return;
        }
}

// A query to which biases hide every slot gives 0 and no weights, whatever its sink.
TEST(AttentionCpu, BiasesThatHideEverySlot) {
  for (int new_tokens : {1, 3, 90})
    for (int merged : {0, 50}) {
      RandomCacheOptions o;
      o.old_tokens = 900;
      o.new_tokens = new_tokens;
      o.sink_logits = true;
      o.weights = true;
      o.merged = merged;
      o.rotation = Rotation::kOnWrite;
      RandomCache cache(o);
      SlotsView slots = *cache.step().cache[0].head[0].slots;
      const std::vector<float> bias(static_cast<std::size_t>(slots.slots), -INFINITY);
      slots.bias = bias.data();
      std::vector<HeadPages> heads(cache.step().cache[0].head, cache.step().cache[0].head + o.kv_heads);
      for (HeadPages& head : heads) head.slots = &slots;
      LayerView layer = cache.step().cache[0];
      layer.head = heads.data();
      AttentionStep step = cache.step();
      step.cache = &layer;
      AttentionScratch scratch;
      scratch.reserve(step, 2);
      run_cpu(step, scratch, 2);
      EXPECT_EQ(largest(cache.out()), 0);
      for (const auto& weights : cache.weights()) EXPECT_EQ(largest(weights), 0);
      cache.clear_results();
      attend_reference(step);
      EXPECT_EQ(largest(cache.out()), 0);
      for (const auto& weights : cache.weights()) EXPECT_EQ(largest(weights), 0);
    }
}

// Biases and sinks of any size neither overflow nor lose the others' sum.
TEST(AttentionCpu, HugeBiasesAndSinkLogits) {
  for (const float sink : {-INFINITY, -1e5F, 0.0F, 900.0F, 1e5F})
    for (int new_tokens : {1, 90})
      for (int merged : {0, 50}) {
        RandomCacheOptions o;
        o.kv_heads = o.group = 1;
        o.old_tokens = 900;
        o.new_tokens = new_tokens;
        o.weights = true;
        o.merged = merged;
        o.rotation = Rotation::kOnWrite;
        RandomCache cache(o);
        SlotsView slots = *cache.step().cache[0].head[0].slots;
        std::vector<float> bias(static_cast<std::size_t>(slots.slots), -1e5F);
        int slot = 0;  // an old token: every query sees it, and its cluster takes all the weight
        while (slots.relative[slot] < 0 || slots.relative[slot] >= cache.step().tokens[0].relative[0]) ++slot;
        bias[static_cast<std::size_t>(slot)] = 1e3F;
        slots.bias = bias.data();
        HeadPages head = cache.step().cache[0].head[0];
        head.slots = &slots;
        LayerView layer = cache.step().cache[0];
        layer.head = &head;
        AttentionStep step = cache.step();
        step.cache = &layer;
        step.shape.sink_logits = &sink;
        AttentionScratch scratch;
        scratch.reserve(step, 2);
        run_cpu(step, scratch, 2);
        const std::vector<float> out = cache.out();
        double sum = 0;
        for (float weight : cache.weights()[0]) sum += weight;
        EXPECT_NEAR(sum, sink < 1e3F ? new_tokens : 0, 1e-4) << sink;
        cache.clear_results();
        attend_reference(step);
        EXPECT_LE(distance(out, cache.out()), 1e-3 * largest(cache.out())) << sink;
      }
}

// Keys in one format, values in another: decoding, few queries, prompts; fused rotation; merged tokens; weights.
TEST(AttentionCpu, EveryPairOfFormats) {
  constexpr CacheType kAll[] = {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0};
  unsigned seed = 0;
  for (const CacheType key : kAll)
    for (const CacheType value : kAll)
      for (const int new_tokens : {1, 5, kOneIn == 1 ? 150 : 70}) {
        RandomCacheOptions o;
        o.type = key;
        o.value_type = value;
        o.group = 2;
        o.head_dim = 64;
        o.value_dim = 96;
        o.old_tokens = new_tokens == 1 ? 700 : 100;
        o.new_tokens = new_tokens;
        o.empty_slots = 0.1;
        o.rope = RopeKind::kHalves;
        o.rope_dims = 64;
        o.weights = true;
        o.seed = ++seed;
        for (const Rotation rotation : {Rotation::kOnWrite, Rotation::kOnRead, Rotation::kMaterialized}) {
          if (rotation == Rotation::kMaterialized && !kv_format(key).elementwise()) continue;
          o.rotation = rotation;
          check(o);
        }
        o.rotation = Rotation::kOnRead;
        o.rotated_half = kv_format(key).elementwise();
        check(o);
        o.rotation = Rotation::kOnWrite;
        o.rotated_half = false;
        o.own_slots = true;
        o.merged = 60;
        check(o);
      }
}

// The other instruction sets that this machine has too.
TEST(AttentionCpu, EveryInstructionSet) {
  int tried = 0;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest((left & -left) | HWY_STATIC_TARGET);
    hwy::GetChosenTarget().DeInit();
    SCOPED_TRACE(hwy::TargetName(left & -left));
    ++tried;
    for (CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16, CacheType::kQ8_0}) {
      RandomCacheOptions o;
      o.type = type;
      if (type == CacheType::kBF16) o.value_type = CacheType::kF32;
      o.group = 3;
      o.old_tokens = 600;
      o.new_tokens = 2;
      o.head_dim = type == CacheType::kQ8_0 ? 64 : 80;
      o.value_dim = type == CacheType::kQ8_0 ? 96 : 68;
      o.empty_slots = 0.1;
      o.rope = RopeKind::kPairs;
      o.rope_dims = 40;
      o.weights = true;
      o.rotation = Rotation::kOnWrite;
      o.sinks = 4;
      o.window = 300;
      o.two_queries = true;
      o.local = 500;
      o.soft_cap = 1;
      check(o);
      o.bias = o.sink_logits = true;
      o.rotation = Rotation::kOnRead;
      check(o);
      o.two_queries = false;
      o.new_tokens = 70;
      check(o);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  EXPECT_GE(tried, 1);
}

// All ways to positions in the cache are one: attention of each over the same tokens.
TEST(AttentionCpu, EveryWayToCachePositionsIsTheSame) {
  for (RopeKind rope : {RopeKind::kPairs, RopeKind::kHalves}) {
    for (int new_tokens : {1, 30}) {
      std::vector<std::vector<float>> results;
      for (int way = 0; way < 4; ++way) {
        RandomCacheOptions o;
        o.kv_heads = 2;
        o.group = new_tokens == 1 ? 4 : 1;
        o.old_tokens = 700;
        o.new_tokens = new_tokens;
        o.rope = rope;
        o.rope_dims = 48;
        o.rotation = way == 3 ? Rotation::kMaterialized : Rotation::kOnRead;
        o.rotated_half = way == 1;
        o.rank_tiles = way == 2;
        RandomCache cache(o);
        AttentionScratch scratch;
        scratch.reserve(cache.step(), 2);
        run_cpu(cache.step(), scratch, 2);
        results.push_back(cache.out());
      }
      for (const auto& result : results) EXPECT_LE(relative(result, results[0]), 1e-6);
    }
  }
}

// Once for every head with weights, when they are complete.
TEST(AttentionCpu, TellsOfCompleteWeights) {
  for (int new_tokens : {1, 40}) {
    RandomCacheOptions o;
    o.sequences = 3;
    o.kv_heads = 4;
    o.old_tokens = 1500;
    o.new_tokens = new_tokens;
    o.own_slots = true;
    o.weights = true;
    RandomCache cache(o);
    struct Heard {
      const RandomCache& cache;
      std::atomic<int> heads[12] = {}, incomplete = 0;
    } heard{cache};
    AttentionStep step = cache.step();
    step.layer = 7;
    step.context = &heard;
    step.on_weights = [](void* context, int layer, int sequence, int kv_head) {
      auto& h = *static_cast<Heard*>(context);
      const int index = sequence * 4 + kv_head;
      ++h.heads[index];
      double sum = 0;
      for (float w : h.cache.weights()[index]) sum += w;
      const int queries = h.cache.step().tokens[sequence].count;
      if (layer != 7 || !(std::abs(sum - queries) < 1e-4 * queries)) ++h.incomplete;
    };
    AttentionScratch scratch;
    scratch.reserve(step, 3);
    for (int threads : {1, 3}) {
      run_cpu(step, scratch, threads);
      for (auto& count : heard.heads) EXPECT_EQ(count.exchange(0), 1);
      cache.clear_results();
    }
    attend_reference(step);
    for (auto& count : heard.heads) EXPECT_EQ(count, 1);
    EXPECT_EQ(heard.incomplete, 0);
  }
}

// One scratch for all layers and steps, whatever their order, and fewer threads than were reserved.
TEST(AttentionCpu, ScratchIsReused) {
  RandomCacheOptions prompt, decode;
  prompt.new_tokens = 90;
  prompt.weights = true;
  decode.old_tokens = 900;
  RandomCache a(prompt), b(decode);
  AttentionStep second = b.step();
  second.layer = 1;
  AttentionScratch scratch;
  scratch.reserve(a.step(), 4);
  scratch.reserve(second, 4);
  const std::size_t bytes = scratch.bytes();
  std::vector<float> first_a, first_b;
  for (int n = 0; n < 20; ++n) {
    run_cpu(a.step(), scratch, 1 + n % 4);
    run_cpu(second, scratch, 4 - n % 3);
    if (n == 0) first_a = a.out(), first_b = b.out();
    ASSERT_TRUE(same_bits(first_a, a.out()));
    ASSERT_TRUE(same_bits(first_b, b.out()));
  }
  scratch.reserve(a.step(), 2);
  EXPECT_EQ(scratch.bytes(), bytes);
}

}  // namespace
}  // namespace palimpsest::testing
