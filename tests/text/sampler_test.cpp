#include "palimpsest/text/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

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
  refused([](SamplerOptions& o) { o.temperature = -1; });
  refused([](SamplerOptions& o) { o.temperature = std::numeric_limits<float>::quiet_NaN(); });
  refused([](SamplerOptions& o) { o.top_k = -1; });
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
  const auto vocabulary = Vocabulary::load(small_model());
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
  const auto vocabulary = Vocabulary::load(small_model());
  const auto says = [&](const char* grammar) {
    SamplerOptions options;
    options.grammar = grammar;
    return error_of([&] { Sampler(options, vocabulary.get(), vocabulary->size()); });
  };
  ::testing::internal::CaptureStderr();
  EXPECT_NE(says("root ::= (").find("not valid GBNF"), std::string::npos);
  EXPECT_NE(says("start ::= \"a\"").find("no rule `root`"), std::string::npos);
#ifdef __GLIBC__
  EXPECT_NE(says("root ::= missing").find("Undefined rule identifier 'missing'"), std::string::npos);
  std::fputs("heard again", stderr);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "heard again");  // nothing of what a stranger may have sent
#else
  ::testing::internal::GetCapturedStderr();
#endif
}

}  // namespace
}  // namespace palimpsest::testing
