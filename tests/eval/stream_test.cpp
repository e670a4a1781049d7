#include "palimpsest/eval/stream.h"

#include <gtest/gtest.h>

#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/model/model.h"

namespace palimpsest::testing {
namespace {

// Random weights: the text is meaningless; memory, windows and counts are tested.
struct Random {
  std::shared_ptr<Model> model = Model::synthetic("tiny");
  std::shared_ptr<Decoder> decoder = std::make_shared<Decoder>(model, 1);
};

SessionOptions stream_options(const std::string& method) {
  SessionOptions options;
  options.method = parse_method(method);
  return options;
}

Sampler greedy_or_not(const Model& model, float temperature) {
  SamplerOptions options;
  options.temperature = temperature;
  options.seed = 1;
  return {options, nullptr, model.hyper().vocabulary};
}

TEST(Stream, CountsWindowsAndEvictions) {
  Random r;
  Session session(r.decoder, stream_options("streaming:budget=32")), judge(r.decoder, stream_options("full"));
  Sampler sampler = greedy_or_not(*r.model, 1);
  const std::vector<TokenId> prompt = {1};
  std::vector<TokenId> text;
  StreamOptions options{.tokens = 310, .windows = 10, .settled = 100, .judged = 24, .judge_skip = 4};
  const auto result =
      run_stream(session, sampler, prompt, options, &judge, 1, [&](TokenId token) { text.push_back(token); }, {});
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.tokens, 310);
  EXPECT_EQ(text.size(), 310u);
  ASSERT_EQ(result.windows.size(), 10u);
  EXPECT_EQ(result.windows.back().to, 310);
  EXPECT_EQ(result.evicted, 311 - 32);
  EXPECT_EQ(result.tenth_mean_ms.size(), 10u);
  EXPECT_GT(result.resident_settled, 0);
  EXPECT_GT(result.cache_bytes, 0u);
  for (const auto& w : result.windows) {
    EXPECT_GT(w.nll, 0);
    EXPECT_TRUE(std::isfinite(w.full_cache_nll));
    EXPECT_GT(w.distinct, 0.5);  // hot sampling from random weights does not loop
    EXPECT_GT(w.ms_mean, 0);
    if (w.from < 32) continue;
    EXPECT_EQ(w.cache_bytes, result.cache_bytes);  // the budget is full: memory is constant
  }
}

// The judge uses the same decoder in between: it must not change the generated text.
TEST(Stream, TheJudgeDoesNotTouchTheStream) {
  Random r;
  const std::vector<TokenId> prompt = {1};
  std::vector<TokenId> with_judge, without;
  for (auto* text : {&with_judge, &without}) {
    Session session(r.decoder, stream_options("streaming:budget=32")), judge(r.decoder, stream_options("full"));
    Sampler sampler = greedy_or_not(*r.model, 1);
    StreamOptions options{.tokens = 100, .windows = 10, .settled = 50, .judged = 8, .judge_skip = 1};
    run_stream(session, sampler, prompt, options, text == &with_judge ? &judge : nullptr, 1,
               [&](TokenId token) { text->push_back(token); }, {});
  }
  EXPECT_EQ(with_judge, without);
}

TEST(Stream, SeesALoop) {
  Random r;
  Session session(r.decoder, stream_options("streaming:budget=32"));
  Sampler sampler = greedy_or_not(*r.model, 0);
  const std::vector<TokenId> prompt = {1};
  StreamOptions options{.tokens = 600, .windows = 3, .settled = 10, .judged = 8, .judge_skip = 1};
  const auto result = run_stream(session, sampler, prompt, options, nullptr, 1, {}, {});
  EXPECT_LT(result.windows.back().distinct, 0.5);  // greedy text of random weights repeats itself
  EXPECT_TRUE(std::isnan(result.windows.back().full_cache_nll));
}

TEST(Stream, RefusesAnEmptyStart) {
  Random r;
  Session session(r.decoder, stream_options("streaming:budget=32"));
  Sampler sampler = greedy_or_not(*r.model, 0);
  EXPECT_THROW(run_stream(session, sampler, {}, {}, nullptr, -1, {}, {}), Error);
}

}  // namespace
}  // namespace palimpsest::testing
