// Embeddings beside generating requests: against hidden states that the decoder computes alone.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/scheduler_fixture.h"
#include "tests/support/plain_embedding.h"

namespace palimpsest::testing {
namespace {

struct Embedding final : RequestListener {
  std::vector<float> vector;
  Finish how = Finish::kFailed;
  Usage usage;
  bool written(const SampledToken&) override {
    ADD_FAILURE() << "an embedding generates nothing";
    return false;
  }
  void embedded(std::span<const float> pooled) override { vector.assign(pooled.begin(), pooled.end()); }
  void finished(Finish finish, const Usage& u) override { how = finish, usage = u; }
};

std::vector<TokenId> random_prompt(std::mt19937& random, std::size_t tokens) {
  std::vector<TokenId> out(tokens);
  for (TokenId& t : out) t = static_cast<TokenId>(random() % kVocabulary);
  return out;
}

Request to_embed(std::vector<TokenId> prompt, Pooling pooling, const char* method = "full") {
  Request request;
  request.prompt = std::move(prompt);
  request.method = parse_method(method);
  request.pooling = pooling;
  request.max_tokens = 0;
  request.reuse = Reuse::kNothing;
  return request;
}

std::vector<double> plain(const std::vector<TokenId>& tokens, Pooling pooling) {
  return plain_embedding(*small_decoder(), tokens, pooling);
}

void expect_near(const std::vector<float>& ours, const std::vector<double>& plain, double most) {
  ASSERT_EQ(ours.size(), plain.size());
  double length = 0, difference = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    length += ours[i] * ours[i];
    difference += (ours[i] - plain[i]) * (ours[i] - plain[i]);
  }
  EXPECT_NEAR(length, 1, 1e-5);
  EXPECT_LE(std::sqrt(difference), most);
}

TEST(EmbeddingTest, IsThePooledHiddenStatesBesideOtherRequests) {
  std::mt19937 random(5);
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  std::vector<std::pair<Request, std::shared_ptr<Answer>>> texts;
  std::vector<std::pair<Request, std::shared_ptr<Embedding>>> vectors;
  for (int i = 0; i < 24; ++i) {
    texts.emplace_back(random_request(random), std::make_shared<Answer>());
    scheduler.submit(texts.back().first, texts.back().second);
    vectors.emplace_back(
        to_embed(random_prompt(random, 1 + random() % 100), i % 2 == 0 ? Pooling::kMean : Pooling::kLast),
        std::make_shared<Embedding>());
    scheduler.submit(vectors.back().first, vectors.back().second);
  }
  while (scheduler.step()) {
  }
  for (const auto& [request, answer] : texts) EXPECT_EQ(answer->tokens, alone(request));
  for (const auto& [request, got] : vectors) {
    EXPECT_EQ(got->how, Finish::kEnd) << got->usage.error;
    EXPECT_EQ(got->usage.prompt_tokens, static_cast<long long>(request.prompt.size()));
    EXPECT_EQ(got->usage.tokens, 0);
    expect_near(got->vector, plain({request.prompt.begin(), request.prompt.end()}, request.pooling), 1e-3);
  }
  EXPECT_EQ(scheduler.load().reserved_bytes, 0u);
}

// A budget of the whole text changes nothing; a smaller one evicts. `kvzip` would read the text a second time.
TEST(EmbeddingTest, TakesAnyMethod) {
  std::mt19937 random(6);
  const auto text = random_prompt(random, 90);
  const auto expected = plain(text, Pooling::kMean);
  for (const char* method : {"streaming:budget=128", "h2o:budget=128", "kvzip:budget=128", "h2o:budget=32"}) {
    SCOPED_TRACE(method);
    Scheduler scheduler(small_decoder(), nullptr, small_options());
    const auto got = std::make_shared<Embedding>();
    scheduler.submit(to_embed(text, Pooling::kMean, method), got);
    while (scheduler.step()) {
    }
    EXPECT_EQ(got->how, Finish::kEnd) << got->usage.error;
    const bool evicts = std::string(method) == "h2o:budget=32";
    EXPECT_EQ(got->usage.evicted > 0, evicts);
    if (!evicts) expect_near(got->vector, expected, 1e-3);
  }
}

TEST(EmbeddingTest, GeneratesNothing) {
  Scheduler scheduler(small_decoder(), nullptr, small_options());
  Request request = to_embed({1, 2, 3}, Pooling::kMean);
  request.max_tokens = 1;
  EXPECT_THROW(scheduler.submit(request, std::make_shared<Embedding>()), Error);
  request.max_tokens = 0;
  request.pooling = Pooling::kNone;
  EXPECT_THROW(scheduler.submit(request, std::make_shared<Embedding>()), Error);
}

}  // namespace
}  // namespace palimpsest::testing
