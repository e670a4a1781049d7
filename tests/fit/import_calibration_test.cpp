// Published calibrations as files of our methods: the numbers are where the policies look for them, and files of other
// models are refused.
#include "palimpsest/fit/import_calibration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "palimpsest/budget/split.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/policy/query_centres.h"
#include "tests/support/error_message.h"
#include "tests/support/own_file.h"
#include "tests/support/torch_file.h"

namespace palimpsest::testing {
namespace {

float statistic(int layer, int head, int which, int pair) {
  return static_cast<float>(1000 * layer + 100 * head + 10 * which) + static_cast<float>(pair) / 64;
}

struct OfModel {
  std::shared_ptr<Model> model;
  const HeadGeometry& geometry() const { return model->hyper().geometry; }
  int query_heads() const { return geometry().layer(0).query_heads; }
  int pairs() const { return model->hyper().rope_table(model->hyper().rope_of(0)).dims / 2; }
};

OfModel model_of(const std::string& shape) {
  return {Model::synthetic(shape)};
}

std::string fault_of(const FileBytes& bytes, const Model& model) {
  return error_message([&] { import_calibration(bytes, "a file", model); });
}

// Pairs are neighbours in `tiny` (as GGUF permutes Llama's), halves in Qwen 2.
TEST(ImportCalibration, StatisticsOfTriAttentionAreMeanQueries) {
  for (const char* shape : {"tiny", "tiny-qwen2"}) {
    SCOPED_TRACE(shape);
    const OfModel of = model_of(shape);
    const Imported imported = import_calibration(
        triattention_file(of.geometry().layers(), of.query_heads(), of.pairs(), statistic), "a file", *of.model);
    EXPECT_EQ(imported.extension, ".centres");
    EXPECT_EQ(imported.of, "tiny/test");
    const std::string file = own_file("import.centres");
    write_new_file(file, imported.content);
    PolicyModel model = policy_model(*of.model, {});
    model.scorer = file;
    const QueryCentres layout(model);
    const std::vector<float> weights = read_scorer(layout.format(), model);
    for (int head = 0; head < model.heads; ++head) {
      const int layer = of.geometry().layer_of(head), group = of.geometry().layer(layer).group();
      const RotatedPairs pairs(model.rope[at(head)]);
      for (int member = 0; member < group; ++member) {
        const int query = of.geometry().kv_head_of(head) * group + member;
        const auto mean = layout.mean(std::span(weights), head, member);
        for (int pair = 0; pair < of.pairs(); ++pair) {
          EXPECT_EQ(mean[pairs.real(at(pair))], statistic(layer, query, 0, pair));
          EXPECT_EQ(mean[pairs.imaginary(at(pair))], statistic(layer, query, 1, pair));
          EXPECT_EQ(layout.lengths(std::span(weights), head, member)[at(pair)], statistic(layer, query, 2, pair));
        }
      }
    }
  }
}

TEST(ImportCalibration, StatisticsOfAnotherShapeAreRefused) {
  const OfModel of = model_of("tiny");
  const int layers = of.geometry().layers(), heads = of.query_heads(), pairs = of.pairs();
  const auto fault = [&](int l, int h, int p) { return fault_of(triattention_file(l, h, p, statistic), *of.model); };
  EXPECT_EQ(fault(layers, heads, pairs), "");
  EXPECT_NE(fault(layers - 1, heads, pairs).find("take statistics of this model"), std::string::npos);
  EXPECT_NE(fault(layers + 1, heads, pairs).find("more layers or heads"), std::string::npos);
  EXPECT_NE(fault(layers, heads - 1, pairs).find("take statistics of this model"), std::string::npos);
  EXPECT_NE(fault(layers, 2 * heads, pairs).find("more layers or heads"), std::string::npos);
  EXPECT_NE(fault(layers, heads, pairs / 2).find(fmt::format("rotates {} pairs", pairs)), std::string::npos);
  EXPECT_NE(fault_of(triattention_file(layers, heads, pairs, [](int, int, int, int) { return NAN; }), *of.model)
                .find("not a number"),
            std::string::npos);
  EXPECT_NE(fault_of(triattention_file(1, 1, 1, statistic), *Model::synthetic("tiny-gpt2")).find("rotary"),
            std::string::npos);
}

TEST(ImportCalibration, HeadBudgetsAreSharesOfTheMean) {
  const OfModel of = model_of("tiny");
  const HeadGeometry& geometry = of.geometry();
  std::string json;
  for (int head = 0; head < geometry.heads(); ++head)
    json += fmt::format("{}\"L{}H{}\": {}", head == 0 ? "{" : ", ", geometry.layer_of(head), geometry.kv_head_of(head),
                        head == 0 ? 0.3 : 0.1);
  const auto fault = [&](const std::string& text) { return fault_of(bytes_of_text(text), *of.model); };
  EXPECT_NE(fault(json + ", \"L99H0\": 0.1}").find("head L99H0"), std::string::npos);
  json += "}";
  const Imported imported = import_calibration(bytes_of_text(json), "a file", *of.model);
  EXPECT_EQ(imported.extension, ".profile");
  const std::string file = own_file("import.profile");
  write_new_file(file, imported.content);
  SplitOf split{.budget = 1000, .guarded = 0};
  for (int layer = 0; layer < geometry.layers(); ++layer) split.heads.push_back(geometry.layer(layer).kv_heads);
  split.fingerprint = [&] { return fingerprint(*of.model); };
  const std::vector<int> budgets = split_budget(Split(file), split);
  const double mean = (0.3 + 0.1 * (geometry.heads() - 1)) / geometry.heads();
  for (int head = 0; head < geometry.heads(); ++head)
    EXPECT_NEAR(budgets[at(head)], 1000 * (head == 0 ? 0.3 : 0.1) / mean, 2);
  EXPECT_NE(fault("{\"L0H0\": 0.5}").find("has no budget of head L0H1"), std::string::npos);
  EXPECT_NE(fault("{\"L0X0\": 0.5}").find("is no head as in L12H3"), std::string::npos);
  EXPECT_NE(fault("{\"L0H0\": 2}").find("no share from 0 to 1"), std::string::npos);
  EXPECT_NE(fault("{\"L0H0\": ").find("no JSON object"), std::string::npos);
}

TEST(ImportCalibration, PatternsOfDuoAttentionAreStreamingHeads) {
  const OfModel of = model_of("tiny");
  const HeadGeometry& geometry = of.geometry();
  std::string tsv;
  for (int layer = 0; layer < geometry.layers(); ++layer)
    for (int head = 0; head < geometry.layer(layer).kv_heads; ++head)
      tsv += fmt::format("{}{}", layer < geometry.layers() / 2 ? 0.1 : 0.9,
                         head + 1 == geometry.layer(layer).kv_heads ? "\n" : "\t");
  const Imported imported = import_calibration(bytes_of_text(tsv), "a file", *of.model);
  EXPECT_EQ(imported.extension, ".duo");
  for (int layer = 0; layer < geometry.layers(); ++layer) {
    const std::string line = fmt::format("  {:5}  {:4}  streaming", layer, 0);
    EXPECT_EQ(imported.content.find(line) != std::string::npos, layer < geometry.layers() / 2) << imported.content;
  }
  EXPECT_NE(fault_of(bytes_of_text(tsv + tsv), *of.model).find("is none of these"), std::string::npos);
  EXPECT_NE(fault_of(bytes_of_text(tsv.substr(tsv.find('\n') + 1)), *of.model).find("heads, and the model has"),
            std::string::npos);
  EXPECT_NE(fault_of(bytes_of_text("0.1\t0.2\t0.3\t0.4\t0.5\t0.6\t0.7\n"), *of.model).find("line 1 has 7 heads"),
            std::string::npos);
  EXPECT_NE(fault_of(bytes_of_text("no numbers"), *of.model).find("is none of these"), std::string::npos);
}

TEST(ImportCalibration, WhatHasNoFormHereIsNamed) {
  const OfModel of = model_of("tiny");
  const auto kvzap =
      safetensors_file(R"({"layers.0.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", {1, 2});
  EXPECT_NE(fault_of(kvzap, *of.model).find("whose input is the hidden state"), std::string::npos);
  const auto other = safetensors_file(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", {1, 2});
  EXPECT_NE(fault_of(other, *of.model).find("holds 1 tensors"), std::string::npos);
  EXPECT_NE(fault_of({}, *of.model).find("is empty"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
