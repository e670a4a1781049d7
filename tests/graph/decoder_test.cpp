// Steps of the decoder: threads, chunks, positions, windows, weight layouts. Against libllama: logits_test.cpp.
#include "palimpsest/graph/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/family.h"
#include "palimpsest/model/model.h"
#include "palimpsest/model/weights.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

struct Setup {
  AttentionRule rule;
  int budget = 0;  // 0: nothing is evicted
  int sinks = 0;
  int chunk = 1;
  StepThreads threads = 1;
  Mechanism mechanism = Mechanism::kInPlace;
};

// Logits of every token; beyond the budget, evicts the oldest tokens except sinks before inserting.
std::vector<float> run(const std::shared_ptr<const Model>& model, const std::vector<TokenId>& tokens, const Setup& s) {
  Decoder decoder(model, s.threads);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  options.mechanism = s.mechanism;
  options.track_rank = s.rule.rotation == Rotation::kOnRead;
  Cache cache(options);
  std::vector<float> out;
  for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(s.chunk)) {
    const auto part = std::span(tokens).subspan(first, std::min<std::size_t>(s.chunk, tokens.size() - first));
    const int count = static_cast<int>(part.size());
    Victims plan;
    plan.drop.resize(1);
    const int surplus = s.budget == 0 ? 0 : cache.occupied() + count - s.budget;
    const SlotTable& table = cache.table(0);
    std::vector<std::pair<Position, int>> old;
    for (int slot = 0; slot < table.slots(); ++slot)
      if (table.position()[slot] >= s.sinks) old.push_back({table.position()[slot], slot});
    std::sort(old.begin(), old.end());
    for (int i = 0; i < surplus; ++i) plan.drop[0].push_back(old[i].second);
    cache.apply(plan);
    cache.insert(count);
    const SequenceStep step{.cache = &cache, .rule = s.rule, .tokens = part, .all_logits = true};
    const auto logits = decoder.step({&step, 1});
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return error / size;
}

// The memory layout of a product decides how fast ggml writes it: see graph_layers.cpp.
TEST(DecoderTest, NoProductBeginsInTheMiddleOfACacheLine) {
  const auto model = Model::synthetic("tiny@type=q8_0", {.repack = false});  // ggml's own products
  const Backends backends(*model, 1);
  for (const int rows : {1, 7, 64}) {
    AttentionOp path(model->hyper(), 1);
    DecoderGraph graph;
    graph.tokens = 64;
    graph.rows = rows;
    GraphMemory memory(backends.host());
    build_graph(graph, *model, path, backends, memory);
    int products = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph.graph); ++i) {
      const ggml_tensor* node = ggml_graph_node(graph.graph, i);
      if (node->op != GGML_OP_MUL_MAT) continue;
      ++products;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(node->data) % 64, 0u) << rows << " " << node->src[0]->name;
    }
    EXPECT_GE(products, 7 * model->hyper().layers);
  }
}

TEST(DecoderTest, TheNumberOfThreadsChangesNoBit) {
  for (const char* shape : {"tiny@type=q4_0", "tiny@type=q8_0", "tiny-qwen3@type=f16"}) {
    const auto model = Model::synthetic(shape);
    const auto tokens = random_tokens(70, 11, model->hyper().vocabulary);
    for (const int chunk : {1, 64}) {  // 64: a batch, then 6 tokens, which are none
      const auto one = run(model, tokens, {.rule = {}, .chunk = chunk, .threads = 1});
      for (const StepThreads threads : {StepThreads(2), StepThreads(3), StepThreads(1, 3), StepThreads(3, 1)})
        EXPECT_EQ(run(model, tokens, {.rule = {}, .chunk = chunk, .threads = threads}), one)
            << shape << " " << chunk << " " << threads.decode << " " << threads.batch;
    }
  }
}

TEST(DecoderTest, ChunksOfAnySizeAgree) {
  const auto model = Model::synthetic("tiny");
  const auto tokens = random_tokens(100, 11, model->hyper().vocabulary);
  const auto one = run(model, tokens, {});
  for (const int chunk : {3, 16, 33, 100})
    EXPECT_LE(relative_difference(run(model, tokens, {.rule = {}, .chunk = chunk}), one), 1e-5);
}

// In one layer, keys and values depend on their token only: without positions their order does not matter.
TEST(DecoderTest, WithoutRotaryPositionsTheOrderOfThePastIsNothing) {
  for (const bool rotary : {false, true}) {
    const auto model = Model::synthetic(rotary ? "tiny@layers=1" : "tiny@layers=1@rope=0");
    auto tokens = random_tokens(30, 11, model->hyper().vocabulary);
    const auto last = [&] {
      const auto all = run(model, tokens, {});
      return std::vector<float>(all.end() - model->hyper().vocabulary, all.end());
    };
    const auto before = last();
    std::reverse(tokens.begin(), tokens.end() - 1);
    const double moved = relative_difference(last(), before);
    if (rotary)
      EXPECT_GT(moved, 1e-3);
    else
      EXPECT_LE(moved, 1e-5);
  }
}

TEST(DecoderTest, LastLogitsAreTheLastRowOfAll) {
  const auto model = Model::synthetic("tiny");
  const auto tokens = random_tokens(40, 11, model->hyper().vocabulary);
  const auto all = run(model, tokens, {.rule = {}, .chunk = 40});
  Decoder decoder(model, 1);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache cache(options);
  cache.insert(40);
  const SequenceStep step{.cache = &cache, .tokens = tokens};
  const auto last = decoder.step({&step, 1});
  ASSERT_EQ(last.size(), static_cast<std::size_t>(model->hyper().vocabulary));
  EXPECT_LE(relative_difference({last.begin(), last.end()},
                                {all.end() - static_cast<std::ptrdiff_t>(last.size()), all.end()}),
            1e-6);
}

// Sinks + window with cache positions: rotating the query twice gives the same as rotating every key at its rank.
TEST(DecoderTest, TwoQueriesAreTheSameAsLateRotation) {
  for (const char* shape : {"tiny", "tiny-qwen2"}) {
    const auto model = Model::synthetic(shape);
    const auto tokens = random_tokens(200, 11, model->hyper().vocabulary);
    const int sinks = 4, window = 28, budget = sinks + window;
    const AttentionRule late{.rotation = Rotation::kOnRead};
    const AttentionRule twice{.rotation = Rotation::kOnWrite, .two_query = true, .sinks = sinks, .window = window};
    const AttentionRule original{.rotation = Rotation::kOnWrite, .two_query = false, .sinks = sinks, .window = window};
    const auto expected = run(model, tokens, {.rule = late, .budget = budget, .sinks = sinks});
    const auto in_place = run(model, tokens, {.rule = twice, .budget = budget, .sinks = sinks});
    EXPECT_LE(relative_difference(in_place, expected), 1e-5);
    EXPECT_LE(relative_difference(
                  run(model, tokens, {.rule = twice, .budget = budget, .sinks = sinks, .mechanism = Mechanism::kShift}),
                  in_place),
              1e-5);
    // Without a mask, with several evictions and inserts at a time: the sinks' distances shrink in the same way.
    const AttentionRule lazy{.rotation = Rotation::kOnWrite, .two_query = true, .sinks = sinks};
    EXPECT_LE(relative_difference(run(model, tokens, {.rule = lazy, .budget = budget, .sinks = sinks, .chunk = 7}),
                                  run(model, tokens, {.rule = late, .budget = budget, .sinks = sinks, .chunk = 7})),
              1e-5);
    // The two kinds of positions must differ, else this test proves nothing.
    EXPECT_GT(relative_difference(run(model, tokens, {.rule = original, .budget = budget, .sinks = sinks}), in_place),
              1e-2);
  }
}

// The window as a mask over all tokens gives the same as a cache that holds sinks + window only.
TEST(DecoderTest, AWindowOverAFullCacheIsAnEvictingCache) {
  const auto model = Model::synthetic("tiny");
  const auto tokens = random_tokens(120, 11, model->hyper().vocabulary);
  const AttentionRule rule{.rotation = Rotation::kOnWrite, .two_query = true, .sinks = 2, .window = 14};
  const auto evicting = run(model, tokens, {.rule = rule, .budget = 16, .sinks = 2});
  EXPECT_LE(relative_difference(run(model, tokens, {.rule = rule}), evicting), 1e-5);
  EXPECT_LE(relative_difference(run(model, tokens, {.rule = rule, .chunk = 40}), evicting), 1e-5);
  AttentionRule late = rule;
  late.rotation = Rotation::kOnRead;
  EXPECT_LE(relative_difference(run(model, tokens, {.rule = late, .chunk = 40}), evicting), 1e-5);
  const std::vector<std::int32_t> windows(static_cast<std::size_t>(model->hyper().geometry.heads()), 14);
  AttentionRule of_heads = rule;
  of_heads.window = 0;
  of_heads.head_window = windows;
  EXPECT_EQ(run(model, tokens, {.rule = of_heads}), run(model, tokens, {.rule = rule}));
}

TEST(DecoderTest, WeightsOfEveryHeadAddUpToOne) {
  const auto model = Model::synthetic("tiny");
  const Hyperparameters& h = model->hyper();
  Decoder decoder(model, 2);
  Cache cache(decoder.cache_options());
  const auto tokens = random_tokens(20, 11, h.vocabulary);
  cache.insert(19);
  const SequenceStep prompt{.cache = &cache, .tokens = std::span(tokens).first(19)};
  decoder.step({&prompt, 1});
  cache.insert(1);
  std::vector<std::vector<float>> weights(h.geometry.heads(), std::vector<float>(cache.table(0).slots(), -1.0F));
  std::vector<float*> rows;
  for (auto& row : weights) rows.push_back(row.data());
  const SequenceStep step{.cache = &cache, .tokens = std::span(tokens).last(1), .weights = rows.data()};
  decoder.step({&step, 1});
  for (const auto& row : weights) {
    double sum = 0;
    for (const float w : row) sum += w;
    EXPECT_NEAR(sum, 1, 1e-4);
  }
}

TEST(DecoderTest, SequencesOfOneStepDoNotMix) {
  const auto model = Model::synthetic("tiny");
  const auto tokens = random_tokens(60, 11, model->hyper().vocabulary);
  const auto alone = run(model, tokens, {.rule = {}, .chunk = 60});
  Decoder decoder(model, 2);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache a(options), b(options);
  a.insert(60);
  b.insert(25);
  const SequenceStep steps[] = {{.cache = &b, .tokens = std::span(tokens).subspan(10, 25)},
                                {.cache = &a, .tokens = tokens}};
  const auto logits = decoder.step(steps);
  const auto size = static_cast<std::size_t>(model->hyper().vocabulary);
  ASSERT_EQ(logits.size(), 2 * size);
  EXPECT_LE(relative_difference({logits.begin() + static_cast<std::ptrdiff_t>(size), logits.end()},
                                {alone.end() - static_cast<std::ptrdiff_t>(size), alone.end()}),
            1e-5);
}

// Weight layouts (ggml's repacking, panels) change only the rounding of activations and the order of sums.
TEST(DecoderTest, RepackedWeightsGiveTheSameModel) {
  for (const char* shape : {"tiny@type=f32", "tiny@type=q4_0", "tiny@type=q8_0", "tiny@type=q4_K"}) {
    const auto repacked = Model::synthetic(shape);
    const auto plain = Model::synthetic(shape, {.repack = false});
    EXPECT_EQ(plain->weights().repacked_bytes, 0U);
    const auto tokens = random_tokens(20, 11, plain->hyper().vocabulary);
    const auto expected = run(plain, tokens, {.rule = {}, .chunk = 20});
    const double difference = relative_difference(run(repacked, tokens, {.rule = {}, .chunk = 20}), expected);
    if (repacked->weights().repacked_bytes == 0 && repacked->weights().panel_bytes == 0)
      EXPECT_EQ(difference, 0) << shape;
    else
      EXPECT_LE(difference, 0.05) << shape;
  }
}

// A step of a known shape does not rebuild the graph.
TEST(DecoderTest, ADecodeStepReusesItsGraph) {
  const auto model = Model::synthetic("tiny");
  Decoder decoder(model, 1);
  Cache cache(decoder.cache_options());
  std::vector<double> build;
  for (TokenId t = 0; t < 50; ++t) {
    cache.insert(1);
    const SequenceStep step{.cache = &cache, .tokens = {&t, 1}};
    decoder.step({&step, 1});
    build.push_back(decoder.times().build);
  }
  std::sort(build.begin() + 1, build.end());
  EXPECT_LT(build[25], build[0]);
}

// Layers [0, k), then [k, n) from the hidden states, give the logits of all layers, bit by bit; with several sequences,
// too.
TEST(DecoderTest, LayersInTwoParts) {
  for (const Family* family : kFamilies) {
    const auto model = Model::synthetic("tiny-" + std::string(family->architecture) + "@layers=3");
    const Hyperparameters& h = model->hyper();
    if (h.alt_up || h.per_layer > 0) continue;  // refused: not only one hidden state goes from layer to layer
    const auto tokens = random_tokens(30, 11, h.vocabulary);
    const auto width = static_cast<std::size_t>(h.width);
    AttentionRule rule;
    if (h.positions() != PositionKind::kRotary) rule.rotation = Rotation::kNever;
    Decoder decoder(model, 2);
    for (const int middle : {0, 1, 2}) {  // 0: not split
      static std::vector<float> whole;
      CacheOptions options = decoder.cache_options();
      options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
      Cache a(options), b(options);
      std::vector<float> logits;
      for (const int chunk : {20, 9, 1}) {
        a.insert(chunk);
        b.insert(chunk);
        SequenceStep steps[] = {
            {.cache = &a, .rule = rule, .tokens = std::span(tokens).first(static_cast<std::size_t>(chunk))},
            {.cache = &b, .rule = rule, .tokens = std::span(tokens).last(static_cast<std::size_t>(chunk))}};
        std::vector<float> hidden;
        if (middle > 0) {
          for (SequenceStep& step : steps) step.layers = {0, middle};
          const auto rows = decoder.step(steps);
          ASSERT_EQ(rows.size(), 2 * static_cast<std::size_t>(chunk) * width);
          hidden.assign(rows.begin(), rows.end());
          for (int i = 0; i < 2; ++i) {
            steps[i].layers = {middle, h.layers};
            steps[i].hidden = std::span(hidden).subspan(i * rows.size() / 2, rows.size() / 2);
          }
        }
        const auto out = decoder.step(steps);
        ASSERT_EQ(out.size(), 2 * static_cast<std::size_t>(h.vocabulary));
        logits.insert(logits.end(), out.begin(), out.end());
      }
      if (middle == 0)
        whole = logits;
      else
        EXPECT_EQ(logits, whole) << family->architecture << ", " << middle;
    }
  }
}

TEST(DecoderTest, ImpossibleLayersAreRefused) {
  const auto model = Model::synthetic("tiny");
  const TokenId token = 1;
  const auto says = [&](Decoder& decoder, LayerRange layers) {
    Cache cache(decoder.cache_options());
    cache.insert(1);
    const SequenceStep step{.cache = &cache, .tokens = {&token, 1}, .layers = layers};
    return error_of([&] { decoder.step({&step, 1}); });
  };
  Decoder decoder(model, 1), portable(Model::synthetic("tiny", {.portable = true}), 1);
  EXPECT_NE(says(decoder, {1, 1}).find("give at least one"), std::string::npos);
  EXPECT_NE(says(decoder, {-1, 1}).find("give at least one"), std::string::npos);
  EXPECT_NE(says(decoder, {1000, 2000}).find("give at least one"), std::string::npos);
  EXPECT_NE(says(portable, {0, 1}).find("leave out --portable, --device and --rpc"), std::string::npos);
}

// Graphs of many shapes, repeated: the memory of the largest, and the same logits.
TEST(DecoderTest, GraphsShareTheirMemory) {
  const auto model = Model::synthetic("tiny");
  const auto tokens = random_tokens(200, 11, model->hyper().vocabulary);
  const auto logits_of = [&](Decoder& decoder, int count) {
    CacheOptions options = decoder.cache_options();
    options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
    Cache cache(options);
    cache.insert(count);
    const SequenceStep step{.cache = &cache, .tokens = std::span(tokens).first(static_cast<std::size_t>(count))};
    const auto logits = decoder.step({&step, 1});
    return std::vector<float>(logits.begin(), logits.end());
  };
  Decoder all(model, 1);
  std::size_t largest = 0;
  for (const int count : {1, 50, 2, 200, 1, 50, 2, 199, 200, 1}) {
    Decoder fresh(model, 1);
    EXPECT_EQ(logits_of(all, count), logits_of(fresh, count)) << count;
    largest = std::max(largest, fresh.graph_bytes());
  }
  EXPECT_EQ(all.graph_bytes(), largest);
}

}  // namespace
}  // namespace palimpsest::testing
