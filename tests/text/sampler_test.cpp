#include "palimpsest/text/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/heap.h"
#include "tests/support/shared_dir.h"
#include "tests/text/spell.h"

namespace palimpsest::testing {
namespace {

std::vector<float> some_logits(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& each : logits) each = normal(random);
  return logits;
}

std::vector<TokenId> draw(const SamplerOptions& options, int count) {
  Sampler sampler(options, nullptr, 100);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(sampler.sample(some_logits(7, 100)));
  return tokens;
}

TEST(Sampler, TemperatureZeroTakesTheLikeliest) {
  SamplerOptions options;
  options.temperature = 0;
  Sampler sampler(options, nullptr, 100);
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto logits = some_logits(seed, 100);
    EXPECT_EQ(sampler.sample(logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST(Sampler, TheSameSeedDrawsTheSame) {
  SamplerOptions options;
  options.seed = 5;
  const auto first = draw(options, 200);
  EXPECT_EQ(first, draw(options, 200));
  options.seed = 6;
  EXPECT_NE(first, draw(options, 200));
}

TEST(Sampler, SaysWhichSeedTheClockGave) {
  SamplerOptions options;
  const std::uint32_t seed = Sampler(options, nullptr, 10).seed();
  EXPECT_NE(seed, 0xFFFFFFFFU);
  options.seed = 17;
  EXPECT_EQ(Sampler(options, nullptr, 10).seed(), 17u);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  SamplerOptions options;
  options.seed = 1;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  Sampler sampler(options, nullptr, 3);
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};
  std::vector<int> count(3);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(sampler.sample(logits))];
  EXPECT_NEAR(count[0], kDraws * 1 / 8, 400);
  EXPECT_NEAR(count[1], kDraws * 2 / 8, 400);
  EXPECT_NEAR(count[2], kDraws * 5 / 8, 400);
}

TEST(Sampler, TopKBoundsTheChoice) {
  SamplerOptions options;
  options.seed = 3;
  options.temperature = 100;
  options.top_k = 2;
  options.top_p = 1;
  options.min_p = 0;
  const auto tokens = draw(options, 500);
  EXPECT_EQ(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 2u);
}

TEST(Sampler, PenaltiesCountPromptTokens) {
  SamplerOptions options;
  options.temperature = 0;
  options.repeat_penalty = 10;
  Sampler sampler(options, nullptr, 3);
  const std::vector<float> logits = {1, 2, 3};
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(logits), 1);
  EXPECT_EQ(sampler.sample(logits), 0);
}

TEST(Sampler, RefusesImpossibleOptions) {
  const auto refused = [](auto change) {
    SamplerOptions options;
    change(options);
    EXPECT_THROW(Sampler(options, nullptr, 10), Error);
  };
  refused([](SamplerOptions& o) { o.temperature = std::numeric_limits<float>::quiet_NaN(); });
  refused([](SamplerOptions& o) { o.top_p = 1.5F; });
  refused([](SamplerOptions& o) { o.min_p = -0.1F; });
  refused([](SamplerOptions& o) { o.repeat_penalty = 0; });
  refused([](SamplerOptions& o) { o.grammar = "root ::= \"a\""; });  // no vocabulary
}

TEST(Sampler, SaysSoWhenLogitsAreNoNumbers) {
  for (const float temperature : {0.0F, 0.8F}) {
    SamplerOptions options;
    options.temperature = temperature;
    Sampler sampler(options, nullptr, 100);
    EXPECT_THROW(sampler.sample(std::vector<float>(100, std::numeric_limits<float>::quiet_NaN())), Error);
  }
}

TEST(Sampler, TheGrammarHasAVeto) {
  const auto vocabulary = Vocabulary::load(default_model());
  for (const float temperature : {0.0F, 1.0F}) {
    SamplerOptions options;
    options.seed = 9;
    options.temperature = temperature;
    options.grammar = "root ::= [a-c]+ \".\"";
    Sampler sampler(options, vocabulary.get(), vocabulary->size());
    std::string text;
    for (unsigned i = 0; i < 200; ++i) {
      const TokenId token = sampler.sample(some_logits(i, vocabulary->size()));
      if (vocabulary->is_end(token)) break;
      text += vocabulary->piece(token);
    }
    ASSERT_FALSE(text.empty());
    EXPECT_EQ(text.back(), '.');
    EXPECT_EQ(text.find_first_not_of("abc"), text.size() - 1) << text;
  }
}

TEST(Sampler, RefusesABadGrammar) {
  const auto vocabulary = Vocabulary::load(default_model());
  const auto says = [&](const char* grammar) {
    SamplerOptions options;
    options.grammar = grammar;
    return error_of([&] { Sampler(options, vocabulary.get(), vocabulary->size()); });
  };
  ::testing::internal::CaptureStderr();
  EXPECT_NE(says("root ::= (").find("not valid GBNF: line 1"), std::string::npos);
  EXPECT_NE(says("start ::= \"a\"").find("no rule `root`"), std::string::npos);
  EXPECT_NE(says("root ::= \"a\" |\n  missing").find("line 2: there is no rule 'missing'"), std::string::npos);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");  // client input is not logged
}

// A sampler's memory and its part of snapshots must not grow over a million tokens.
TEST(Sampler, MemoryIsFlat) {
  const auto vocabulary = Vocabulary::load(default_model());
  SamplerOptions options;
  options.seed = 3;
  options.top_k = 5;
  options.repeat_penalty = 1.1F;
  options.grammar = R"g(root ::= item*
item ::= [a-z ]+ | "(" item ")" | [^a-z()])g";
  Sampler sampler(options, vocabulary.get(), vocabulary->size());
  const std::vector<float> logits = some_logits(1, vocabulary->size());
#ifdef PALIMPSEST_SANITIZED
  constexpr int kTokens = 20'000;
#else
  constexpr int kTokens = 1'000'000;
#endif
  std::size_t settled = 0, state = 0;
  for (int i = 1; i <= kTokens; ++i) {
    sampler.accept(static_cast<TokenId>(i % 300));
    if (i % 10 == 0) sampler.sample(logits);
    if (i == kTokens / 10) {
      settled = heap_in_use();
      state = sampler.state().history.size() + sampler.state().grammar.size();
    }
  }
  EXPECT_LE(heap_in_use(), settled + (1 << 20));
  EXPECT_LE(sampler.state().history.size() + sampler.state().grammar.size(), state + 64);
  EXPECT_EQ(sampler.state().history.size(), 64u);
}

TEST(Sampler, AResumedOneGoesOnAsItWould) {
  const auto vocabulary = Vocabulary::load(default_model());
  SamplerOptions options;
  options.seed = 11;
  options.penalty_last_n = 20;
  options.frequency_penalty = 0.5F;
  options.grammar = R"g(root ::= list
list ::= "(" (list | [a-z ]+ | [^\x00-\x7f]+)* ")")g";
  Sampler first(options, vocabulary.get(), vocabulary->size());
  for (TokenId token = 0; token < 50; ++token) first.accept(token);
  for (unsigned i = 0; i < 40; ++i) first.sample(some_logits(i, vocabulary->size()));
  Sampler second(options, vocabulary.get(), vocabulary->size());
  second.resume(first.seed(), first.state());
  for (unsigned i = 40; i < 120; ++i) {
    const auto logits = some_logits(i, vocabulary->size());
    const TokenId token = first.sample(logits);
    ASSERT_EQ(second.sample(logits), token);
    if (vocabulary->is_end(token)) break;
  }
}

// The oldest snapshots hold the tokens instead of the grammar's state.
TEST(Sampler, ResumesFromTokens) {
  const auto vocabulary = Vocabulary::load(default_model());
  SamplerOptions options;
  options.temperature = 0;
  options.grammar = R"(root ::= "aa" "b" "c")";
  Sampler old(options, vocabulary.get(), vocabulary->size());
  const std::vector<std::int32_t> written = spell(*vocabulary, "aab");
  ASSERT_FALSE(written.empty());
  old.resume(1, {.history = {}, .grammar = written, .draws = 0, .single_candidate = 0});
  EXPECT_EQ(vocabulary->piece(old.sample(some_logits(1, vocabulary->size()))), "c");

  Sampler bad(options, vocabulary.get(), vocabulary->size());
  EXPECT_THROW(bad.resume(1, {.history = {}, .grammar = {vocabulary->size()}, .draws = 0, .single_candidate = 0}),
               Error);
  Sampler other(options, vocabulary.get(), vocabulary->size());
  EXPECT_THROW(
      other.resume(1, {.history = {}, .grammar = {-1, 0, 0, 0, 1, 1000, 0, 1}, .draws = 0, .single_candidate = 0}),
      Error);
}

// A request that waits for admission has a sampler, to be refused at once if its options are invalid.
TEST(Sampler, TakesTheMemoryOfAVocabularyWithItsFirstToken) {
  constexpr int kTokens = 100'000;
  const std::size_t before = heap_in_use();
  std::vector<std::unique_ptr<Sampler>> samplers;
  for (int i = 0; i < 16; ++i) samplers.push_back(std::make_unique<Sampler>(SamplerOptions{}, nullptr, kTokens));
  EXPECT_LT(heap_in_use() - before, samplers.size() * kTokens);
  const std::vector<float> logits(kTokens, 0);
  EXPECT_LT(samplers.front()->sample(logits), kTokens);
}

}  // namespace
}  // namespace palimpsest::testing
