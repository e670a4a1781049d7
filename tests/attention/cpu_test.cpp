// The fast path against the oracle, over random combinations of all features of a step.
#include "palimpsest/attention/cpu.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "palimpsest/attention/reference.h"
#include "palimpsest/attention/work.h"
#include "palimpsest/cache/view.h"
#include "tests/support/check_attention.h"

namespace palimpsest::testing {
namespace {

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
        check_attention(o);
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
    check_attention(o);
    o.empty_slots = 0.3;
    o.new_tokens = 5;
    o.weights_queries = 2;
    check_attention(o);
  }
}

#ifdef PALIMPSEST_SANITIZED  // the double-precision reference is ten times slower
constexpr unsigned kRandomSteps = 40, kOneIn = 10;
#else
constexpr unsigned kRandomSteps = 300, kOneIn = 1;
#endif

// Skips nine of ten combinations under a sanitizer.
bool left_out(unsigned seed) {
  return (seed * 2654435761U >> 20) % kOneIn != 0;
}

TEST(AttentionCpu, PromptChunks) {
  for (CacheType type : kTypes) {
    for (int old_tokens : {0, kOneIn == 1 ? 700 : 200}) {
      RandomCacheOptions o;
      o.type = type;
      o.group = 3;
      o.old_tokens = old_tokens;
      o.new_tokens = kOneIn == 1 ? 200 : 40;
      o.rotation = Rotation::kOnWrite;
      o.rope = RopeKind::kHalves;
      o.rope_dims = 64;
      check_attention(o);
      o.weights = true;
      check_attention(o);
      o.weights_queries = 30;
      check_attention(o);
      o.sums = true;
      check_attention(o);
      o.merged = 300;
      check_attention(o);
    }
  }
}

// Maximum over a query group, summed over queries or not: kept for few rows, recomputed for many, over splits.
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
          check_attention(o);
          o.weights_queries = 2;
          check_attention(o);
        }
}

// Weights in rows of queries: kept for few queries, recomputed for many, with and without merged tokens.
TEST(AttentionCpu, RowsOfWeights) {
  unsigned seed = 300;
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0})
    for (const std::vector<int>& rows : {std::vector{3}, {1, 4, 4}, {2, 1}, {1, 9, 9, 9, 3}})
      for (const int more : {0, 2, 70})
        for (const int merged : {0, 200}) {
          if (left_out(++seed)) continue;
          RandomCacheOptions o;
          o.seed = seed;
          o.type = type;
          o.group = 1 + static_cast<int>(seed % 4);
          o.sequences = 2;
          o.old_tokens = kOneIn == 1 ? 700 : 250;
          o.weights_rows = rows;
          o.weights_queries = std::accumulate(rows.begin(), rows.end(), 0);
          o.new_tokens = o.weights_queries + 3 + more;  // the second sequence has 3 fewer
          o.own_slots = merged > 0;
          o.merged = merged;
          o.weights = true;
          o.sums = seed % 2 == 0;
          if (merged == 0 && !o.sums && seed % 3 == 0) o.weight_reduction = WeightReduction::kMaxOverGroup;
          check_attention(o);
        }
}

// Merged tokens give the same result as if they were expanded: clusters of one and of many tokens, few and many
// queries.
TEST(AttentionCpu, MergedTokens) {
  unsigned seed = 100;
  for (const CacheType type : kCacheTypes)
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
          check_attention(o);
          if (HasFailure()) return;
        }
}

// All features together, at random.
TEST(AttentionCpu, RandomSteps) {
  std::mt19937 random(2026);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  const auto some_type = [&] { return kCacheTypes[random() % std::size(kCacheTypes)]; };
  for (unsigned n = 0; n < kRandomSteps; ++n) {
    RandomCacheOptions o;
    o.seed = n + 1;
    o.type = some_type();
    o.value_type = some_type();
    const bool scaled = !kv_format(o.type).elementwise();
    o.kv_heads = one_of(1, 2, 3);
    o.group = one_of(1, 2, 3, 4, 5, 8);
    o.head_dim = scaled ? one_of(32, 64, 96, 128) : one_of(8, 20, 64, 80);
    o.value_dim =
        !kv_format(*o.value_type).elementwise() ? one_of(32, 64, 96) : one_of(o.head_dim, o.head_dim, 24, 100);
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
    o.query_factor = !o.two_queries && n % 3 == 0;
    o.chunked = o.local != INT32_MAX && n % 2 == 0;
    o.rank_keys = o.rotation == Rotation::kOnWrite && one_of(false, true);
    o.weights = one_of(false, true);
    o.weights_queries = one_of(INT32_MAX, 1, 5);
    o.sums = o.weights && one_of(false, true);
    if ((o.rotation == Rotation::kNever || o.rotation == Rotation::kOnWrite) && !o.two_queries)
      o.merged = one_of(0, 1, 40, 500), o.own_positions = one_of(false, true);
    check_attention(o);
    if (HasFailure()) return;
  }
}

// Drafts: each query's output and weights have the bits of a step of its own.
TEST(AttentionCpu, Drafts) {
  std::mt19937 random(18);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  const auto some_type = [&] { return kCacheTypes[random() % std::size(kCacheTypes)]; };
  for (unsigned n = 0; n < kRandomSteps; ++n) {
    RandomCacheOptions o;
    o.seed = n + 1;
    o.type = some_type();
    o.value_type = some_type();
    const bool scaled = !kv_format(o.type).elementwise();
    o.kv_heads = one_of(1, 2);
    o.group = one_of(1, 2, 4, 7, 8, 16, 17, 32);
    o.head_dim = scaled ? one_of(32, 64, 128) : one_of(8, 20, 64, 80);
    o.value_dim = !kv_format(*o.value_type).elementwise() ? one_of(32, 64) : one_of(o.head_dim, 24);
    o.page_size = one_of(16, 64);
    o.sequences = one_of(1, 1, 2);
    o.old_tokens = one_of(0, 1, 100, 600, 1200);
    o.new_tokens = std::min(one_of(2, 4, 8, 9, 16), max_draft_tokens(o.group));
    o.empty_slots = one_of(0.0, 0.2);
    o.own_slots = one_of(false, true);
    o.rotation =
        one_of(Rotation::kNever, Rotation::kOnWrite, Rotation::kOnRead, Rotation::kOnRead, Rotation::kMaterialized);
    o.rope = one_of(RopeKind::kNone, RopeKind::kPairs, RopeKind::kHalves);
    o.rope_dims = o.rope == RopeKind::kNone ? 0 : one_of(o.head_dim, o.head_dim / 2);
    if (scaled && o.rotation == Rotation::kMaterialized) o.rotation = Rotation::kOnRead;
    o.rotated_half = !scaled && o.rotation == Rotation::kOnRead && o.rope != RopeKind::kNone && one_of(false, true);
    o.window = one_of(INT32_MAX, INT32_MAX, 150);
    o.sinks = one_of(0, 4);
    o.two_queries = o.sinks > 0 && one_of(false, true);
    o.local = one_of(INT32_MAX, INT32_MAX, 50);
    o.soft_cap = one_of(0.0F, 20.0F);
    o.alibi = one_of(false, false, true);
    o.rank_distance = o.alibi && one_of(false, true);
    o.sink_logits = one_of(false, true);
    o.query_factor = !o.two_queries && n % 3 == 0;
    o.chunked = o.local != INT32_MAX && n % 2 == 0;
    o.weights = one_of(false, true);
    if ((o.rotation == Rotation::kNever || o.rotation == Rotation::kOnWrite) && !o.two_queries)
      o.merged = one_of(0, 40, 500), o.own_positions = one_of(false, true);
    if (o.merged == 0)
      o.weight_reduction =
          one_of(WeightReduction::kMeanOverGroup, WeightReduction::kMaxOverGroup, WeightReduction::kMaxOverAll);
    check_drafts(o);
    if (HasFailure()) return;
  }
}

// Soft caps and attention windows of the layer, with all other rules.
TEST(AttentionCpu, SoftCapsAndLocalWindows) {
  unsigned seed = 0;
  for (const CacheType type : kCacheTypes) {
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
          const bool half = kv_format(type).elementwise() && seed % 5 == 2;
          o.rotation = seed % 5 == 0 ? Rotation::kOnWrite : half ? Rotation::kMaterialized : Rotation::kOnRead;
          o.rotated_half = kv_format(type).elementwise() && seed % 5 == 1;
          if (seed % 7 > 3) o.sinks = 4, o.window = seed % 7 == 4 ? INT32_MAX : 200, o.two_queries = seed % 7 == 6;
          check_attention(o);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Keys in one format, values in another: decoding, few queries, prompts; fused rotation; merged tokens; weights.
TEST(AttentionCpu, EveryPairOfFormats) {
  constexpr auto& kAll = kCacheTypes;
  unsigned seed = 0;
  for (const CacheType key : kAll)
    for (const CacheType value : kAll)
      for (const int new_tokens : {1, 5, kOneIn == 1 ? 150 : 20}) {
        ++seed;
        if ((seed + seed / 3) % (kOneIn == 1 ? 1 : 3) != 0) continue;  // under a sanitizer: one of the lengths
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
        o.seed = seed;
        for (const Rotation rotation : {Rotation::kOnWrite, Rotation::kOnRead, Rotation::kMaterialized}) {
          if (rotation == Rotation::kMaterialized && !kv_format(key).elementwise()) continue;
          o.rotation = rotation;
          check_attention(o);
        }
        o.rotation = Rotation::kOnRead;
        o.rotated_half = kv_format(key).elementwise();
        check_attention(o);
        o.rotation = Rotation::kOnWrite;
        o.rotated_half = false;
        o.own_slots = true;
        o.merged = 60;
        check_attention(o);
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
    for (const CacheType type : kCacheTypes) {
      RandomCacheOptions o;
      o.type = type;
      if (type == CacheType::kBF16) o.value_type = CacheType::kF32;
      o.group = 3;
      o.old_tokens = kOneIn == 1 ? 600 : 150;
      o.new_tokens = 2;
      o.head_dim = !kv_format(type).elementwise() ? 64 : 80;
      o.value_dim = !kv_format(type).elementwise() ? 96 : 68;
      o.empty_slots = 0.1;
      o.rope = RopeKind::kPairs;
      o.rope_dims = 40;
      o.weights = true;
      o.rotation = Rotation::kOnWrite;
      o.sinks = 4;
      o.window = o.old_tokens / 2;
      o.two_queries = true;
      o.local = o.old_tokens * 5 / 6;
      o.soft_cap = 1;
      check_attention(o);
      o.bias = o.sink_logits = true;
      o.rotation = Rotation::kOnRead;
      check_attention(o);
      o.two_queries = false;
      o.new_tokens = kOneIn == 1 ? 70 : 20;
      check_attention(o);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  EXPECT_GE(tried, 1);
}

// All ways to keep cache positions give the same attention over the same tokens.
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
      for (const auto& result : results) EXPECT_LE(relative_difference(result, results[0]), 1e-6);
    }
  }
}

// on_weights is called once for each head with weights, when they are complete.
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
    LayerStep step = cache.step();
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

// One scratch serves all layers and steps, in any order, and fewer threads than reserved.
TEST(AttentionCpu, ScratchIsReused) {
  RandomCacheOptions prompt, decode;
  prompt.new_tokens = 90;
  prompt.weights = true;
  decode.old_tokens = 900;
  RandomCache a(prompt), b(decode);
  LayerStep second = b.step();
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
