// Rare attention features in random combinations: ALiBi, no positions (NoPE), soft caps, layers with an attention
// window, sink logits. The test changes the model's hyperparameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/model/weights.h"
#include "tests/support/error_of.h"
#include "tests/support/teacher_forced.h"
#include "tests/support/test_device.h"

namespace palimpsest::testing {
namespace {

struct Case {
  const char* name;
  bool slopes, shared;
  AttentionRule rule;
  float soft_cap = 0;
  std::int32_t local = INT32_MAX;  // window of every second layer
  bool sink_logits = false;
  bool unrotated = false;  // every second layer has no positions
  bool query_factor = false, chunked = false;
};

// Logits of steps of 1 to 3 tokens; from 20 tokens on, evicts two random tokens of each slot table.
template <typename Path>
std::vector<float> logits_of(const std::shared_ptr<const Model>& model, const Case& how) {
  Hyperparameters hyper = model->hyper();
  if (how.rule.rotation == Rotation::kNever) hyper.rope.kind = RopeKind::kNone;
  hyper.attention_soft_cap = how.soft_cap;
  std::vector<std::int32_t> windows(static_cast<std::size_t>(hyper.layers), INT32_MAX);
  for (std::size_t layer = 0; layer < windows.size(); layer += 2) windows[layer] = how.local;
  hyper.geometry = hyper.geometry.with_windows(windows, how.chunked);
  if (how.unrotated) {
    hyper.local_rope = RopeOptions::unrotated(hyper.rope);
    for (int i = 0; i < hyper.layers; ++i) hyper.local_rope_layers.push_back(i % 2 == 1);
  }
  for (int i = 0; how.sink_logits && i < hyper.layers; ++i)
    for (int h = 0; h < hyper.geometry.layer(i).query_heads; ++h)
      hyper.sink_logits.resize(static_cast<std::size_t>(i) + 1),
          hyper.sink_logits.back().push_back(static_cast<float>(h) - 3 + 0.5F * static_cast<float>(i));
  for (int i = 0; how.query_factor && i < hyper.layers; ++i)
    for (int d = 0; d < hyper.geometry.layer(i).key_width; ++d)
      hyper.query_factors.resize(static_cast<std::size_t>(i) + 1),
          hyper.query_factors.back().push_back(0.5F + 0.1F * static_cast<float>((7 * d + i) % 11));
  if (how.slopes)
    for (int h = 0; h < hyper.geometry.layer(0).query_heads; ++h)
      hyper.alibi.push_back(std::exp2(-0.7F * static_cast<float>(h + 1)));

  Backends backends(*model, 1);
  const auto path = [&] {
    if constexpr (std::is_same_v<Path, AttentionOp>)
      return std::make_unique<AttentionOp>(hyper, 1);
    else
      return std::make_unique<PortablePath>(hyper, backends);
  }();
  CacheOptions options = path->cache_options(hyper);
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  options.shared = how.shared;
  options.track_rank = how.rule.rank_distance || how.rule.rotation == Rotation::kOnRead;
  Cache cache(options);
  Step step(hyper);
  std::mt19937 random(3);
  std::vector<float> all;
  for (int i = 0; i < 40; ++i) {
    std::vector<TokenId> tokens;
    for (int t = 0; t <= i % 3; ++t) tokens.push_back(static_cast<TokenId>(random() % 100));
    Victims plan;
    plan.drop.resize(static_cast<std::size_t>(cache.tables()));
    for (int t = 0; t < cache.tables() && cache.occupied() > 20; ++t)
      for (int n = 0; n < 2;) {
        const int slot = static_cast<int>(random() % static_cast<unsigned>(cache.table(t).slots()));
        const Position position = cache.table(t).position()[slot];
        if (position < how.rule.sinks || std::ranges::count(plan.drop[t], slot) > 0) continue;
        plan.drop[t].push_back(slot);
        ++n;
      }
    cache.apply(plan);
    cache.insert(static_cast<int>(tokens.size()));
    const SequenceStep sequence{.cache = &cache, .rule = how.rule, .tokens = tokens, .all_logits = true};
    step.prepare({&sequence, 1});

    DecoderGraph graph;
    graph.tokens = graph.rows = step.tokens();
    graph.path_shape = path->begin(step);
    GraphMemory memory(backends.host());
    build_graph(graph, *model, *path, backends, memory);
    std::vector<float> rows(static_cast<std::size_t>(ggml_nelements(graph.embeddings)));
    for (std::size_t t = 0; t < tokens.size(); ++t)
      model->weights().embedding_row(tokens[t], rows.data() + t * static_cast<std::size_t>(hyper.width));
    ggml_backend_tensor_set(graph.embeddings, rows.data(), 0, rows.size() * sizeof(float));
    path->prepare(graph, step);
    run_graph(graph, backends);
    const auto count = static_cast<std::size_t>(ggml_nelements(graph.logits));
    all.resize(all.size() + count);
    ggml_backend_tensor_get(graph.logits, all.data() + all.size() - count, 0, count * sizeof(float));
  }
  return all;
}

void expect_equal(const std::vector<Case>& cases, const std::string& device = "cpu", double bound = 1e-5) {
  const auto fast = Model::synthetic("tiny");
  const auto portable = Model::synthetic("tiny", {.device = device, .portable = true});
  const int vocabulary = fast->hyper().vocabulary;
  std::vector<std::vector<float>> all;
  for (const Case& how : cases) {
    SCOPED_TRACE(how.name);
    all.push_back(logits_of<PortablePath>(portable, how));
    EXPECT_LE(max_relative_error(all.back(), logits_of<AttentionOp>(fast, how), vocabulary), bound);
    for (std::size_t other = 0; other + 1 < all.size(); ++other)  // all differ
      EXPECT_GT(max_relative_error(all.back(), all[other], vocabulary), 2 * bound);
  }
}

TEST(PortableOdd, Alibi) {
  const AttentionRule plain{.rotation = Rotation::kNever};
  AttentionRule ranks = plain, window = plain;
  ranks.rank_distance = true;
  window.sinks = 2, window.window = 9;
  AttentionRule window_ranks = window;
  window_ranks.two_query = window_ranks.rank_distance = true;
  expect_equal({{"positions", true, true, plain},
                {"positions, tables of each head", true, false, plain},
                {"ranks", true, true, ranks},
                {"ranks, tables of each head", true, false, ranks},
                {"a window", true, true, window},
                {"a window, ranks", true, true, window_ranks},
                {"no bias", false, false, plain}});
}

std::vector<Case> capped_and_local() {
  const AttentionRule never{.rotation = Rotation::kNever}, late{.rotation = Rotation::kOnRead}, plain;
  const AttentionRule two_query{.two_query = true, .sinks = 2, .window = 9};
  return {{"neither", false, true, plain},
          {"capped", false, true, plain, 0.2F},
          {"local", false, true, plain, 0, 5},
          {"both", false, true, plain, 0.2F, 5},
          {"both, tables of each head", false, false, plain, 0.2F, 5},
          {"local, late", false, true, late, 0, 5},
          {"both, tables of each head, late", false, false, late, 0.2F, 6},
          {"local within a window, sinks met apart", false, true, two_query, 0, 7},
          {"both, biases", true, true, never, 0.1F, 5},
          {"both, no bias, tables of each head", false, false, never, 0.2F, 4}};
}

TEST(PortableOdd, SoftCapsAndLocalWindows) {
  expect_equal(capped_and_local());
}

TEST(PortableOdd, SinkLogits) {
  const AttentionRule never{.rotation = Rotation::kNever}, late{.rotation = Rotation::kOnRead}, plain;
  const AttentionRule two_query{.two_query = true, .sinks = 2, .window = 9};
  expect_equal({{"none", false, true, plain},
                {"all", false, true, plain, 0, INT32_MAX, true},
                {"tables of each head", false, false, plain, 0, INT32_MAX, true},
                {"late, capped", false, false, late, 0.2F, INT32_MAX, true},
                {"two queries, local", false, true, two_query, 0, 7, true},
                {"biases", true, true, never, 0, INT32_MAX, true}});
}

TEST(PortableOdd, LayersWithoutPositions) {
  const AttentionRule late{.rotation = Rotation::kOnRead}, plain;
  const AttentionRule two_query{.two_query = true, .sinks = 2, .window = 9};
  expect_equal({{"none", false, true, plain},
                {"every second", false, true, plain, 0, INT32_MAX, false, true},
                {"late", false, true, late, 0, INT32_MAX, false, true},
                {"late, tables of each head", false, false, late, 0, INT32_MAX, false, true},
                {"two queries", false, true, two_query, 0, INT32_MAX, false, true}});
}

TEST(PortableOdd, QueryFactors) {
  const AttentionRule late{.rotation = Rotation::kOnRead}, plain;
  const auto factors = [](const char* name, bool shared, const AttentionRule& rule) {
    return Case{.name = name, .slopes = false, .shared = shared, .rule = rule, .query_factor = true};
  };
  expect_equal({{"none", false, true, plain},
                factors("positions", true, plain),
                factors("late", true, late),
                factors("late, tables of each head", false, late)});
}

TEST(PortableOdd, ChunksOfTheText) {
  const AttentionRule late{.rotation = Rotation::kOnRead}, plain;
  const auto chunks = [](const char* name, bool shared, const AttentionRule& rule, int size) {
    return Case{.name = name, .slopes = false, .shared = shared, .rule = rule, .local = size, .chunked = true};
  };
  expect_equal({{"none", false, true, plain},
                {"windows", false, true, plain, 0, 5},
                chunks("chunks", true, plain, 5),
                chunks("late", true, late, 7),
                chunks("late, tables of each head", false, late, 6)});
}

// Refused instead of ignored: these graphs have no inputs for them.
TEST(PortableOdd, RefusesBiasesOfSlots) {
  const float zeros[16] = {};
  SlotsView slots;
  const HeadPages head = {.page = {}, .slots = &slots};
  LayerView layer;
  layer.head = &head;
  LayerStep step;
  step.shape.kv_heads = 1;
  step.cache = &layer;
  EXPECT_NO_THROW(require_supported(step, 0));
  slots.bias = zeros;
  EXPECT_NE(error_of([&] { require_supported(step, 0); }).find("biases of slots"), std::string::npos);
}

TEST(PortableOdd, SoftCapsAndLocalWindowsOnVulkan) {
  if (!has_test_device()) GTEST_SKIP() << "needs device " << test_device();
  const std::vector<Case> cases = capped_and_local();
  expect_equal({cases[0], cases[4], cases[6]}, test_device(), 5e-3);  // the bound: vulkan_test.cpp
}

}  // namespace
}  // namespace palimpsest::testing
