#include "palimpsest/eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/compare.h"
#include "palimpsest/eval/likelihood.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

// The small model and a text for it; made once.
struct Stories {
  std::shared_ptr<Model> model;
  std::shared_ptr<Decoder> decoder;
  std::shared_ptr<Vocabulary> vocabulary;
  std::vector<std::string> text;

  std::vector<TokenId> tokens(std::size_t count) const {
    std::vector<TokenId> all = {vocabulary->bos()};
    for (const auto& story : text) {
      const auto more = vocabulary->tokenize(story, false, false);
      all.insert(all.end(), more.begin(), more.end());
      if (all.size() >= count) break;
    }
    all.resize(std::min(all.size(), count));
    return all;
  }
};

const Stories* stories() {
  static const auto made = []() -> std::unique_ptr<Stories> {
    const auto shared = shared_dir();
    if (!shared) return nullptr;
    auto s = std::make_unique<Stories>();
    const std::string path = (*shared / "models/stories260K/stories260K.gguf").string();
    s->model = Model::load(path);
    s->decoder = std::make_shared<Decoder>(s->model, 1);
    s->vocabulary = Vocabulary::load(path);
    std::ifstream file(*shared / "text/tinystories_1000.json");
    s->text = nlohmann::json::parse(file).get<std::vector<std::string>>();
    return s;
  }();
  return made.get();
}

#define NEED_STORIES()                \
  const Stories* const s = stories(); \
  if (s == nullptr) GTEST_SKIP() << "needs shared/models/stories260K and shared/text (set PALIMPSEST_SHARED)"

SessionOptions with(const std::string& method, CacheType type = CacheType::kF32, int chunk = 512) {
  SessionOptions options;
  options.method = parse_method(method);
  options.cache_type = type;
  options.chunk = chunk;
  return options;
}

// Softmax in long double over the logits of token-by-token decoding: shares only the model with the code under test.
TEST(Perplexity, EqualsAPlainComputationTokenByToken) {
  NEED_STORIES();
  const auto tokens = s->tokens(201);
  Session plain(s->decoder, with("full"));
  long double sum = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    long double total = 0;
    const auto logits = plain.decode(tokens[i]);
    for (const float logit : logits) total += std::exp(static_cast<long double>(logit));
    sum += std::log(total) - static_cast<long double>(logits[static_cast<std::size_t>(tokens[i + 1])]);
  }
  Session session(s->decoder, with("full"));
  const auto result = perplexity(session, tokens, 50);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.predicted, 200);
  EXPECT_NEAR(result.nll, static_cast<double>(sum / 200), 1e-5);
  EXPECT_NEAR(result.value(), std::exp(static_cast<double>(sum / 200)), 1e-4);
  ASSERT_EQ(result.curve.size(), 4u);
  EXPECT_EQ(result.curve.front().from, 1);
  EXPECT_EQ(result.curve.back().to, 201);
  double mean = 0;
  for (const auto& bin : result.curve) mean += bin.nll / 4;
  EXPECT_NEAR(mean, result.nll, 1e-9);
}

TEST(Perplexity, StoriesScoreWhatTheirModelCardSays) {
  NEED_STORIES();
  Session session(s->decoder, with("full"));
  double nats = 0;
  long long count = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    auto tokens = s->vocabulary->tokenize(s->text.at(i), true, false);
    ASSERT_EQ(tokens.front(), s->vocabulary->bos());
    const auto result = perplexity(session, tokens, 1000);
    nats += result.nll * static_cast<double>(result.predicted);
    count += result.predicted;
  }
  EXPECT_NEAR(nats / static_cast<double>(count), 1.66, 0.01);
}

TEST(Perplexity, ChunksDoNotChangeAStream) {
  NEED_STORIES();
  const auto tokens = s->tokens(1500);
  double first = 0;
  for (const int chunk : {1, 7, 128, 512}) {
    Session session(s->decoder, with("streaming:budget=128", CacheType::kF32, chunk));
    const auto result = perplexity(session, tokens, 100);
    EXPECT_EQ(result.predicted, 1499);
    EXPECT_GT(result.evicted, 1200) << chunk;
    if (chunk == 1) first = result.value();
    EXPECT_NEAR(result.value(), first, 1e-4 * first) << chunk;
  }
}

TEST(Perplexity, TextsTogetherAreTheMeanOfAllTheirTokens) {
  NEED_STORIES();
  Session session(s->decoder, with("streaming:budget=64"));
  std::vector<Perplexity> texts;
  double sum = 0;
  for (const std::size_t count : {201u, 101u}) {
    texts.push_back(perplexity(session, s->tokens(count), 50));
    ASSERT_EQ(texts.back().losses.size(), count - 1);
    for (const float nats : texts.back().losses) sum += static_cast<double>(nats);
  }
  const Perplexity all = merge_perplexities(texts);
  EXPECT_EQ(all.predicted, 300);
  EXPECT_NEAR(all.nll, sum / 300, 1e-9);
  EXPECT_EQ(all.evicted, 200 - 64 + 100 - 64);
  ASSERT_EQ(all.curve.size(), 4u);
  EXPECT_EQ(all.curve[1].tokens, 100);
  EXPECT_EQ(all.curve[3].tokens, 50);
  EXPECT_NEAR(all.curve[0].nll, (texts[0].curve[0].nll + texts[1].curve[0].nll) / 2, 1e-9);
  EXPECT_NEAR(all.curve[3].nll, texts[0].curve[3].nll, 1e-12);
}

TEST(Perplexity, StopsWhenAsked) {
  NEED_STORIES();
  const auto tokens = s->tokens(400);
  Session session(s->decoder, with("full", CacheType::kF16, 100));
  const auto result = perplexity(session, tokens, 50, [](long long done, long long) { return done < 200; });
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.predicted, 200);
  EXPECT_GT(result.value(), 1);
}

TEST(Perplexity, RefusesWhatHasNoLoss) {
  NEED_STORIES();
  Session session(s->decoder, with("full"));
  EXPECT_THROW(perplexity(session, std::vector<TokenId>{1}, 10), Error);
  EXPECT_THROW(perplexity(session, std::vector<TokenId>{1, 2}, 0), Error);
}

// Without a prompt a method that evicts at a prompt's end would predict all of the text from a full cache.
TEST(Perplexity, MethodsThatEvictAtAPromptsEndNeedOne) {
  NEED_STORIES();
  const auto tokens = s->tokens(400);
  for (const char* name : {"ems:budget=64", "snapkv:budget=64", "knorm:budget=64,schedule=prompt"}) {
    Session session(s->decoder, with(name));
    const std::string error = error_of([&] { perplexity(session, tokens, 50); });
    EXPECT_NE(error.find("--prompt"), std::string::npos) << name << ": " << error;
    const auto result = perplexity(session, tokens, 50, {}, 200);
    EXPECT_EQ(result.predicted, 199);
    EXPECT_TRUE(result.complete);
    EXPECT_GE(result.evicted, 136) << name;
  }
  Session full(s->decoder, with("full", CacheType::kF32)),
      knorm(s->decoder, with("knorm:budget=64,schedule=prompt", CacheType::kF32));
  const auto whole = perplexity(full, tokens, 50), after = perplexity(full, tokens, 50, {}, 200);
  ASSERT_EQ(after.losses.size(), 199u);
  for (std::size_t i = 0; i < 199; ++i) EXPECT_NEAR(after.losses[i], whole.losses[200 + i], 1e-3);
  // As a session that reads the prompt, and then token by token.
  const auto evicted = perplexity(knorm, tokens, 50, {}, 200);
  Session plain(s->decoder, with("knorm:budget=64,schedule=prompt", CacheType::kF32));
  plain.prefill(std::span(tokens).first(200));
  for (std::size_t i = 200; i + 1 < tokens.size(); ++i)
    EXPECT_EQ(evicted.losses[i - 200],
              static_cast<float>(negative_log_likelihood(plain.decode(tokens[i]), tokens[i + 1])));
  EXPECT_NE(error_of([&] { perplexity(full, tokens, 50, {}, 399); }).find("399"), std::string::npos);
}

TEST(Perplexity, BinsAreRound) {
  EXPECT_EQ(round_bin(100000), 1000);
  EXPECT_EQ(round_bin(130000), 2000);
  EXPECT_EQ(round_bin(30), 1);
  EXPECT_EQ(round_bin(70001, 100), 1000);
}

// The mechanism does not change a result: in place and shift, both kinds of positions, both ways to rotate. Longer
// runs: `make exactness`.
TEST(Compare, MechanismAndRotationDoNotChangeTheLogits) {
  NEED_STORIES();
  const auto tokens = s->tokens(400);
  const std::vector<std::vector<std::string>> groups = {
      {"streaming:budget=64,positions=original,mechanism=in-place",
       "streaming:budget=64,positions=original,mechanism=shift"},
      {"streaming:budget=64,positions=cache,mechanism=in-place,rerotate=two-query",
       "streaming:budget=64,positions=cache,mechanism=shift,rerotate=two-query",
       "streaming:budget=64,positions=cache,mechanism=in-place,rerotate=fused",
       "streaming:budget=64,positions=cache,mechanism=shift,rerotate=fused"}};
  for (const auto& group : groups) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> others;
    for (const auto& method : group) sessions.push_back(std::make_unique<Session>(s->decoder, with(method)));
    for (std::size_t i = 1; i < sessions.size(); ++i) others.push_back(sessions[i].get());
    const auto rows = compare(*sessions[0], others, tokens, 1e-5);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].steps, 400);
      EXPECT_LE(rows[i].max_difference, 1e-5) << group[i + 1];
      EXPECT_EQ(rows[i].flipped, 0) << group[i + 1];
      EXPECT_GT(others[i]->cache().evicted(), 300);
    }
  }
}

TEST(Compare, SeesADifference) {
  NEED_STORIES();
  const auto tokens = s->tokens(120);
  Session a(s->decoder, with("streaming:budget=64")), b(s->decoder, with("streaming:budget=63"));
  std::vector<Session*> others = {&b};
  const auto rows = compare(a, others, tokens, 1e-5);
  EXPECT_GT(rows[0].max_difference, 1e-3);
  EXPECT_GE(rows[0].max_difference_step, 62);  // equal until the smaller budget is full
  EXPECT_GT(rows[0].mean_kl, 0);
}

}  // namespace
}  // namespace palimpsest::testing
