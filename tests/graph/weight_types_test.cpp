// What every type of weights promises: a sequence's logits depend on nothing beside it, and are as near to those of
// exact activations as with ggml's own products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "palimpsest/graph/decoder.h"
#include "palimpsest/matmul/panels.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/in_type.h"
#include "tests/support/missing_feature.h"
#include "tests/support/random_tokens.h"
#include "tests/support/shared_dir.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

class WeightTypes : public ::testing::TestWithParam<ggml_type> {};

// Logits of the first of `company` sequences: a prompt, then tokens one by one. The others begin with prompts of other
// lengths, so that steps mix prompts and single tokens.
std::vector<float> first_of(const std::shared_ptr<const Model>& model, int company, int threads) {
  constexpr int kPrompt = 21, kSteps = 6;
  const int vocabulary = model->hyper().vocabulary;
  Decoder decoder(model, threads);
  std::vector<std::unique_ptr<Cache>> caches;
  std::vector<std::vector<TokenId>> texts;
  for (int i = 0; i < company; ++i) {
    caches.push_back(std::make_unique<Cache>(decoder.cache_options()));
    texts.push_back(
        random_tokens(kPrompt + kSteps + static_cast<std::size_t>(i), 5 + static_cast<unsigned>(i), vocabulary));
  }
  std::vector<float> out;
  std::vector<std::size_t> read(texts.size());
  for (int step = 0; step < kSteps; ++step) {
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (static_cast<int>(i) % kSteps > step) continue;  // has not begun
      const std::size_t count = read[i] == 0 ? texts[i].size() - kSteps : 1;
      caches[i]->insert(static_cast<int>(count));
      steps.push_back({.cache = caches[i].get(), .tokens = std::span(texts[i]).subspan(read[i], count)});
      read[i] += count;
    }
    const auto logits = decoder.step(steps);
    out.insert(out.end(), logits.begin(), logits.begin() + vocabulary);
  }
  return out;
}

TEST_P(WeightTypes, LogitsDependOnNoCompanyAndNoThreads) {
  const auto model = Model::synthetic(std::string("tiny@type=") + ggml_type_name(GetParam()));
  if (!Panels::supports(GetParam(), 256, 256)) GTEST_SKIP() << needs_panels();
  const auto alone = first_of(model, 1, 1);
#ifdef PALIMPSEST_SANITIZED
  constexpr int kCompany[] = {7}, kThreads[] = {2};
#else
  constexpr int kCompany[] = {1, 7, 31}, kThreads[] = {1, 2, 3};
#endif
  for (const int company : kCompany)
    for (const int threads : kThreads)
      EXPECT_EQ(first_of(model, company, threads), alone) << company << " sequences, " << threads << " threads";
}

// Of each row, the KL divergence from `truth` to `other`, in nats.
std::vector<double> divergences(const std::vector<float>& truth, const std::vector<float>& other, std::size_t width) {
  std::vector<double> out;
  for (std::size_t row = 0; row < truth.size(); row += width) {
    const auto log_sum = [&](const std::vector<float>& x) {
      double all = 0;
      for (std::size_t i = 0; i < width; ++i) all += std::exp(static_cast<double>(x[row + i]));
      return std::log(all);
    };
    const double of_truth = log_sum(truth), of_other = log_sum(other);
    double sum = 0;
    for (std::size_t i = row; i < row + width; ++i) {
      const double p = truth[i] - of_truth, q = other[i] - of_other;
      sum += std::exp(p) * (p - q);
    }
    out.push_back(sum);
  }
  return out;
}

struct Mean {
  explicit Mean(const std::vector<double>& values) {
    for (const double v : values) mean += v;
    mean /= static_cast<double>(values.size());
    double squares = 0;
    for (const double v : values) squares += (v - mean) * (v - mean);
    error = std::sqrt(squares) / static_cast<double>(values.size());
  }
  double mean = 0, error = 0;  // error: standard error of the mean
};

void expect_as_near_as_ggmls(const std::string& gguf, ggml_type type, const std::vector<TokenId>& tokens) {
  const std::string path = in_type(gguf, type);
  const TeacherForced how{.name = "full", .chunk = 64};
  const auto exact = Model::load(in_f32(path));
  const auto width = static_cast<std::size_t>(exact->hyper().vocabulary);
  const auto truth = run(exact, how, tokens).logits;
  const auto ours = divergences(truth, run(Model::load(path), how, tokens).logits, width),
             ggmls = divergences(truth, run(Model::load(path, {.repack = false}), how, tokens).logits, width);
  std::vector<double> more(ours.size());
  std::ranges::transform(ours, ggmls, more.begin(), std::minus<>());
  const Mean mean(ours), of_ggml(ggmls), difference(more);
  std::printf("%s: KL to exact activations %.2e nats, ggml's %.2e, difference %.1e +- %.1e\n", ggml_type_name(type),
              mean.mean, of_ggml.mean, difference.mean, difference.error);
  // Types with 8-bit activations in both have the same roundings, of other sums: their difference is chance, and a few
  // rows make most of the mean.
  EXPECT_LE(difference.mean, 4 * difference.error + 1e-9);
  EXPECT_LE(mean.mean, 2 * of_ggml.mean + 1e-9);
}

std::vector<TokenId> tokens_of(const std::string& model, const std::filesystem::path& text) {
  std::ifstream file(text);
  return Vocabulary::load(model)->tokenize(std::string((std::istreambuf_iterator<char>(file)), {}), true, false);
}

TEST_P(WeightTypes, LogitsAreAsNearToExactActivationsAsGgmls) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "figures only: test_matmul runs the same products";
#endif
  const auto path = default_model();
  expect_as_near_as_ggmls(path, GetParam(), tokens_of(path, source_dir() / "tests/model/golden/stories-full.txt"));
}

TEST_P(WeightTypes, LogitsOfStories260KAreAsNearToExactActivationsAsGgmls) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "figures only: test_matmul runs the same products";
#endif
  const auto path = stories260k();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  const auto text = std::filesystem::path(*path).parent_path() / "golden-greedy.txt";
  expect_as_near_as_ggmls(*path, GetParam(), tokens_of(*path, text));
}

INSTANTIATE_TEST_SUITE_P(Types, WeightTypes,
                         ::testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                           GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4,
                                           GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& info) { return std::string(ggml_type_name(info.param)); });

}  // namespace
}  // namespace palimpsest::testing
