// The portable path on a backend without custom operators: ggml's Vulkan backend, on Mesa's software device if there is
// no GPU. Skipped if ggml has no Vulkan device.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/cpu/attention_op.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/model/weights.h"
#include "tests/support/draws.h"
#include "tests/support/random_tokens.h"
#include "tests/support/teacher_forced.h"
#include "tests/support/test_device.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

// Matrix products on Vulkan round both operands to f16: a relative error of 3e-4 each (products with a vector keep f32:
// 1e-7). Over the layers and softmax it adds up to 1e-3 of a logit here.
constexpr double kBound = 5e-3;

class VulkanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_test_device())
      GTEST_SKIP() << "needs device " << test_device()
                   << " (for Vulkan's: in this test or in tests before it in the process)";
  }
};

TEST_F(VulkanTest, EqualsTheFastPathOnTheCpu) {
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBF16}) {
    const bool two_bytes = type != CacheType::kF32;
    const char* const name = type == CacheType::kF32 ? "tiny" : "tiny-qwen2";  // RoPE by pairs, by halves
    const auto vulkan = Model::synthetic(name, ModelOptions{.device = test_device()});
    const auto cpu = Model::synthetic(name);
    Interleaved turn(long_tests() ? 1 : two_bytes ? 6 : 8);  // on a software device a step takes 50 ms
    for (const auto& kind : every_kind(20, type)) {
      if (two_bytes && (kind.mechanism != Mechanism::kShift || kind.rule.two_query || kind.by_window))
        continue;  // the result of moves depends on the type
      if (!two_bytes && kind.name.find("any victims, late") == 0 && kind.chunk == 1) continue;
      if (turn.next() != 0) continue;
      SCOPED_TRACE(kind.name);
      const auto tokens = random_text(kind.chunk > 1 ? 60 : 30, 5, cpu->hyper().vocabulary);
      const auto ours = run(vulkan, kind, tokens), theirs = run(cpu, kind, tokens);
      const double error = max_relative_error(ours.logits, theirs.logits, cpu->hyper().vocabulary);
      std::printf("%-50s %.1e\n", kind.name.c_str(), error);
      EXPECT_LE(error, kBound);
      if (!theirs.weights.empty()) {
        EXPECT_LE(max_relative_error(ours.weights, theirs.weights, static_cast<int>(theirs.weights.size())), kBound);
      }
    }
  }
}

// Operators that the device lacks run on the CPU: here all attention, as a custom operator over the cache's pages.
TEST_F(VulkanTest, WhatTheDeviceLacksRunsOnTheCpu) {
  const auto model = Model::synthetic("tiny", ModelOptions{.device = test_device()});
  const auto reference = Model::synthetic("tiny");
  const std::vector<TokenId> tokens = random_text(20, 5, model->hyper().vocabulary);
  Backends backends(*model, 1);
  AttentionOp path(model->hyper(), 1);
  Step step(model->hyper());
  CacheOptions options = path.cache_options(model->hyper());
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache cache(options);
  cache.insert(static_cast<int>(tokens.size()));
  const SequenceStep sequence{.cache = &cache, .tokens = tokens, .all_logits = true};
  step.prepare({&sequence, 1});

  DecoderGraph graph;
  graph.tokens = graph.rows = step.tokens();
  graph.path_shape = path.begin(step);
  GraphMemory memory(backends.host());
  build_graph(graph, *model, path, backends, memory);
  ASSERT_NE(graph.schedule, nullptr);
  std::vector<float> rows(static_cast<std::size_t>(ggml_nelements(graph.embeddings)));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    model->weights().embedding_row(tokens[i], rows.data() + i * static_cast<std::size_t>(model->hyper().width));
  std::vector<float> logits(static_cast<std::size_t>(ggml_nelements(graph.logits)));
  for (int time = 0; time < 2; ++time) {  // a planned graph is executed repeatedly
    ggml_backend_tensor_set(graph.embeddings, rows.data(), 0, rows.size() * sizeof(float));
    path.prepare(graph, step);
    run_graph(graph, backends);
    ggml_backend_tensor_get(graph.logits, logits.data(), 0, logits.size() * sizeof(float));
    const auto expected = run(reference, TeacherForced{.name = "full", .rule = {}, .chunk = 20}, tokens).logits;
    EXPECT_LE(max_relative_error(logits, expected, model->hyper().vocabulary), kBound);
  }
}

}  // namespace
}  // namespace palimpsest::testing
