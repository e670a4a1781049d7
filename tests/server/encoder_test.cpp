// Embeddings and scores of encoders over HTTP.
#include "palimpsest/encoder/encoder.h"

#include <cmath>

#include "palimpsest/text/encoder_text.h"
#include "tests/server/server_fixture.h"
#include "tests/support/tiny_encoder.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kEmbed = "/v1/embeddings";
constexpr const char* kRerank = "/v1/rerank";
constexpr const char* kSentences[] = {"The cat sat on the mat.", "A dog ran home", "cats and dogs", ""};
constexpr const char* kAnimals[] = {"a cat", "the dog ran home", "on the mat", "home"};

ServerSetup encoder_setup(const TinyEncoder& shape = {}) {
  ServerSetup setup;
  setup.encoder = tiny_encoder(shape, "served.gguf");
  return setup;
}

// What an encoder of its own gives for one text.
std::vector<float> encoded_alone(const std::string& path, const std::vector<TokenId>& tokens) {
  const SharedTokens text = tokens;
  return Encoder::load(path)->encode({&text, 1}, [] {}).front();
}

std::vector<double> numbers_at(const Json& list, std::size_t index, const char* field) {
  return list[index][field].get<std::vector<double>>();
}

void expect_near(const std::vector<double>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double length = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-3);
    length += got[i] * got[i];
  }
  EXPECT_NEAR(length, 1, 1e-4);
}

TEST(EncoderServer, EmbedsInAllForms) {
  const ServerSetup setup = encoder_setup();
  const Running running(setup);
  const auto words = Vocabulary::load(setup.encoder);
  const Json answer = running.answer(kEmbed, {{"input", kSentences}, {"model", "encoder"}});
  ASSERT_EQ(answer["data"].size(), 4u);
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto text = encoder_tokens(*words, kSentences[i]);
    tokens += text.size();
    expect_near(numbers_at(answer["data"], i, "embedding"), encoded_alone(setup.encoder, text));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens);
  const auto first = encoded_alone(setup.encoder, encoder_tokens(*words, kSentences[0]));
  const auto second = encoded_alone(setup.encoder, {2, 7, 3});
  expect_near(numbers_at(running.answer(kEmbed, {{"input", {2, 7, 3}}})["data"], 0, "embedding"), second);
  expect_near(numbers_at(running.answer("/embeddings", {{"content", kSentences[0]}})["data"], 0, "embedding"), first);
  const Json ollama = running.answer("/api/embed", {{"model", "encoder"}, {"input", {kSentences[0]}}});
  expect_near(ollama["embeddings"][0].get<std::vector<double>>(), first);
  EXPECT_EQ(ollama["prompt_eval_count"], encoder_tokens(*words, kSentences[0]).size());
  expect_near(running.answer("/api/embeddings", {{"prompt", kSentences[0]}})["embedding"].get<std::vector<double>>(),
              first);
}

TEST(EncoderServer, RanksByItsHead) {
  const ServerSetup setup = encoder_setup({.pooling = 4, .head = true});
  const Running running(setup);
  const auto words = Vocabulary::load(setup.encoder);
  const Json answer = running.answer(kRerank, {{"query", "where is the cat"}, {"documents", kAnimals}});
  ASSERT_EQ(answer["results"].size(), 4u);
  double last = 1e9;
  for (const Json& each : answer["results"]) {
    const auto pair = pair_tokens(*words, "where is the cat", kAnimals[each["index"].get<std::size_t>()]);
    const double expected = plain_score(setup.encoder, plain_bert(setup.encoder, pair).front());
    EXPECT_NEAR(each["relevance_score"].get<double>(), expected, 0.02 * (1 + std::abs(expected)));
    EXPECT_LE(each["relevance_score"].get<double>(), last);
    last = each["relevance_score"].get<double>();
  }
  const Json best = running.answer(
      kRerank, {{"query", "where is the cat"}, {"texts", kAnimals}, {"top_n", 1}, {"return_text", true}});
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0]["index"], answer["results"][0]["index"]);
  EXPECT_EQ(best[0]["text"], kAnimals[best[0]["index"].get<std::size_t>()]);
  const auto [status, message] = running.refusal(kEmbed, {{"input", "x"}});
  EXPECT_EQ(status, 501);
  EXPECT_NE(message.find("use /v1/rerank"), std::string::npos) << message;
}

TEST(EncoderServer, RanksByCosineWithoutAHead) {
  const Running running(encoder_setup());
  const Json answer = running.answer(kRerank, {{"query", "the dog ran home"}, {"documents", kAnimals}});
  EXPECT_EQ(answer["results"][0]["index"], 1);
  EXPECT_NEAR(answer["results"][0]["relevance_score"].get<double>(), 1, 1e-4);
}

TEST(EncoderServer, WritesNoText) {
  Running running(encoder_setup());
  const std::pair<const char*, Json> asked[] = {
      {kText, {{"prompt", "x"}}},
      {kChat, {{"messages", {{{"role", "user"}, {"content", "x"}}}}}},
      {kResponses, {{"input", "x"}}},
      {"/completion", {{"prompt", "x"}}},
      {"/v1/messages", {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 5}}},
      {"/api/generate", {{"model", "encoder"}, {"prompt", "x"}}}};
  for (const auto& [path, body] : asked) {
    const auto [status, message] = running.refusal(path, body);
    EXPECT_EQ(status, 501) << path;
    EXPECT_NE(message.find("is an encoder, which writes no text: it answers /v1/embeddings and /v1/rerank"),
              std::string::npos)
        << path << ": " << message;
  }
  EXPECT_EQ(running.client().Get("/v1/methods")->status, 501);
}

TEST(EncoderServer, Refusals) {
  const Running running(encoder_setup());
  const auto refused = [&](const char* path, const Json& body, const char* part) {
    const auto [status, message] = running.refusal(path, body);
    EXPECT_EQ(status, 400) << body;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  std::string text;
  for (int i = 0; i < 70; ++i) text += " cat";
  refused(kEmbed, {{"input", {"x", text}}}, "'input[1]' has 72 tokens, the model's context is 64");
  refused(kRerank, {{"query", "x"}, {"documents", {text}}}, "'documents[0]' has 72 tokens");
  refused(kEmbed, {{"input", "x"}, {"cache", {{"budget", 64}}}}, "'cache' has no effect");
  refused(kEmbed, {{"input", "x"}, {"dimensions", 3}}, "have 32 dimensions");
  refused(kEmbed, {{"input", {100000}}}, "not in the model's vocabulary");
  refused(kEmbed, {{"input", {-1}}}, "no token");
  // Cut where the request asks for it: [CLS], 62 words, [SEP].
  std::string fits;
  for (int i = 0; i < 62; ++i) fits += " cat";
  const Json cut = running.answer("/api/embed", {{"input", text}, {"truncate", true}});
  EXPECT_EQ(cut["prompt_eval_count"], 64);
  const Json whole = running.answer("/api/embed", {{"input", fits}});
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_NEAR(cut["embeddings"][0][i].get<double>(), whole["embeddings"][0][i].get<double>(), 1e-4);
}

TEST(EncoderServer, TellsWhatItIs) {
  Running running(encoder_setup());
  const auto get = [&](const char* path) { return Json::parse(running.client().Get(path)->body); };
  EXPECT_EQ(get("/v1/models")["data"][0]["id"], "encoder");
  EXPECT_EQ(get("/props")["default_generation_settings"]["n_ctx"], 64);
  EXPECT_TRUE(get("/props")["cache"].is_null());
  EXPECT_EQ(get("/slots").size(), static_cast<std::size_t>(running.service().options().max_sequences));
  EXPECT_EQ(running.answer("/tokenize", {{"prompt", "the cat"}})["tokens"].size(), 4u);
  EXPECT_EQ(running.answer("/tokenize", {{"content", "the cat"}})["tokens"].size(), 2u);
  const Json shown = running.answer("/api/show", {{"model", "encoder"}});
  EXPECT_EQ(shown["capabilities"], Json::array({"embedding"}));
  EXPECT_EQ(shown["details"]["family"], "bert");
  running.answer(kEmbed, {{"input", "the cat"}});
  const std::string metrics = running.client().Get("/metrics")->body;
  EXPECT_NE(metrics.find("palimpsest_prompt_tokens_total{model_name=\"encoder\"} 4\n"), std::string::npos) << metrics;
}

TEST(EncoderServer, AnswersManyClients) {
  const ServerSetup setup = encoder_setup();
  const Running running(setup);
  const auto words = Vocabulary::load(setup.encoder);
  std::vector<std::vector<float>> expected;
  for (const char* text : kSentences) expected.push_back(encoded_alone(setup.encoder, encoder_tokens(*words, text)));
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < 8; ++client)
    clients.emplace_back([&, client] {
      const std::vector<std::string> texts(30 + 10 * client, kSentences[client % 4]);
      const Json answer = running.answer(kEmbed, {{"input", texts}});
      for (std::size_t i = 0; i < answer["data"].size(); i += 29)
        expect_near(numbers_at(answer["data"], i, "embedding"), expected[client % 4]);
    });
  for (std::thread& each : clients) each.join();
}

TEST(EncoderServer, AFullQueueRefuses) {
  ServerSetup setup = encoder_setup();
  setup.scheduler.max_queue = 0;
  const Running running(setup);
  EXPECT_EQ(running.refusal(kEmbed, {{"input", "x"}}).first, 429);
}

TEST(EncoderServer, ATimeLimitEndsARequest) {
  ServerSetup setup = encoder_setup();
  setup.server.timeout = std::chrono::milliseconds(1);
  const Running running(setup);
  std::string text;
  for (int i = 0; i < 60; ++i) text += " cat";
  const auto [status, message] = running.refusal(kEmbed, {{"input", std::vector<std::string>(2048, text)}});
  EXPECT_EQ(status, 504) << message;
}

}  // namespace
}  // namespace palimpsest::testing
