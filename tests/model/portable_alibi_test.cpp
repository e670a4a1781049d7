// No rotation but a bias for each head and distance (ALiBi), or none (NoPE): no family of models has it yet, so the
// graph is built by hand.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "palimpsest/model/attention_op.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/graph.h"
#include "palimpsest/model/portable.h"
#include "palimpsest/model/synthetic.h"
#include "palimpsest/model/weights.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest {
namespace {

struct Case {
  const char* name;
  bool slopes, shared;
  AttentionRule rule;
};

// Logits of steps of 1 to 3 tokens, of which two leave by lot in each slot table once there are 20.
template <typename Path>
std::vector<float> logits_of(const std::shared_ptr<const Model>& model, const Case& how) {
  Hyperparameters hyper = model->hyper();
  hyper.rope.kind = RopeKind::kNone;
  if (how.slopes)
    for (int h = 0; h < hyper.query_heads; ++h) hyper.alibi.push_back(std::exp2(-0.7F * static_cast<float>(h + 1)));

  const ggml_backend_ptr backend = make_backend(find_device("cpu"), 1);
  const auto path = [&] {
    if constexpr (std::is_same_v<Path, AttentionOp>)
      return std::make_unique<AttentionOp>(hyper, 1);
    else
      return std::make_unique<PortablePath>(hyper, backend.get());
  }();
  CacheOptions options = path->cache_options(hyper);
  options.type = CacheType::kF32;
  options.shared = how.shared;
  options.track_rank = how.rule.rank_distance;
  Cache cache(options);
  Step step(hyper);
  std::mt19937 random(3);
  std::vector<float> all;
  for (int i = 0; i < 40; ++i) {
    std::vector<TokenId> tokens;
    for (int t = 0; t <= i % 3; ++t) tokens.push_back(static_cast<TokenId>(random() % 100));
    Plan plan;
    plan.drop.resize(static_cast<std::size_t>(cache.tables()));
    for (int t = 0; t < cache.tables() && cache.live() > 20; ++t)
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
    build_graph(graph, *model, *path, backend.get(), 1);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      model->weights().embedding_row(tokens[t], static_cast<float*>(graph.embeddings->data) + t * hyper.width);
    path->prepare(graph, step);
    run_graph(graph, backend.get());
    const float* logits = static_cast<const float*>(graph.logits->data);
    all.insert(all.end(), logits, logits + ggml_nelements(graph.logits));
  }
  return all;
}

TEST(PortableAlibi, EqualsTheFastPath) {
  const auto model = Model::synthetic("tiny");
  const AttentionRule plain{.rotation = Rotation::kNever};
  AttentionRule ranks = plain, window = plain;
  ranks.rank_distance = true;
  window.sinks = 2, window.window = 9;
  AttentionRule window_ranks = window;
  window_ranks.two_query = window_ranks.rank_distance = true;
  std::vector<float> positions;
  for (const Case& how : {Case{"positions", true, true, plain},
                          Case{"positions, tables of each head", true, false, plain}, Case{"ranks", true, true, ranks},
                          Case{"ranks, tables of each head", true, false, ranks}, Case{"a window", true, true, window},
                          Case{"a window, ranks", true, true, window_ranks}, Case{"no bias", false, false, plain}}) {
    SCOPED_TRACE(how.name);
    const auto ours = logits_of<PortablePath>(model, how), theirs = logits_of<AttentionOp>(model, how);
    EXPECT_LE(testing::greatest_relative_error(ours, theirs, model->hyper().vocabulary), 1e-5);
    if (positions.empty())
      positions = ours;
    else  // and each of them is something else
      EXPECT_GT(testing::greatest_relative_error(ours, positions, model->hyper().vocabulary), 1e-3);
  }
}

}  // namespace
}  // namespace palimpsest
