// Biases of slots and sink logits (cache/view.h, AttentionShape) against the double-precision reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/attention/reference.h"
#include "palimpsest/cache/view.h"
#include "tests/support/check_attention.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

// Biases of slots and sink logits: every format, one query over splits, few queries (weights kept), many (recomputed),
// merged tokens, with soft caps, ALiBi, windows and two queries.
TEST(AttentionBias, AndSinkLogits) {
  unsigned seed = 300;
  for (const CacheType type : kCacheTypes)
    for (int new_tokens : {1, 3, 90})
      for (int merged : {0, 100})
        for (int what : {1, 2, 3}) {
          if ((++seed * 2654435761U >> 20) % test_length(1U, 1U, 8U) != 0) continue;
          RandomCacheOptions o;
          o.seed = seed;
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
          check_attention(o);
          o.merged = merged;
          o.rope = RopeKind::kHalves;
          o.rope_dims = 64;
          o.rotation = Rotation::kOnWrite;
          o.own_positions = seed % 3 == 1;
          o.soft_cap = seed % 4 == 1 ? 2 : 0;
          o.alibi = seed % 4 < 2;
          if (merged == 0) o.sinks = 4, o.window = 150, o.two_queries = seed % 2 == 1;
          if (merged == 0 && seed % 5 > 2) o.weight_reduction = WeightReduction::kMaxOverGroup;
          check_attention(o);
          if (HasFailure()) return;
        }
}

// If biases hide all slots from a query, its output and weights are 0, whatever its sink logit.
TEST(AttentionBias, HidesEverySlot) {
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
      LayerStep step = cache.step();
      step.cache = &layer;
      AttentionScratch scratch;
      scratch.reserve(step, 2);
      run_cpu(step, scratch, 2);
      EXPECT_EQ(max_magnitude(cache.out()), 0);
      for (const auto& weights : cache.weights()) EXPECT_EQ(max_magnitude(weights), 0);
      cache.clear_results();
      attend_reference(step);
      EXPECT_EQ(max_magnitude(cache.out()), 0);
      for (const auto& weights : cache.weights()) EXPECT_EQ(max_magnitude(weights), 0);
    }
}

// Biases and sink logits of any size neither overflow nor absorb the other terms.
TEST(AttentionBias, HugeAndSinkLogits) {
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
        LayerStep step = cache.step();
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
        EXPECT_LE(max_distance(out, cache.out()), 1e-3 * max_magnitude(cache.out())) << sink;
      }
}

}  // namespace
}  // namespace palimpsest::testing
