// What clients of llama-server expect: paths with and without /v1, any model name, timings.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

const Json kShort = {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};

TEST(LlamaServer, PathsWithAndWithoutV1) {
  ServerSetup setup;
  setup.server.api_keys = {"key"};
  Running server(setup);
  auto client = server.client();
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/v1/health")->status, 200);
  EXPECT_EQ(client.Get("/models")->status, 401);
  client.set_bearer_token_auth("key");
  for (const char* path : {"/models", "/v1/models", "/models/stories", "/v1/models/stories", "/props", "/v1/props",
                           "/methods", "/metrics", "/v1/metrics"})
    EXPECT_EQ(client.Get(path)->status, 200) << path;
  const auto text = [&](const char* path) {
    const auto answer = client.Post(path, kShort.dump(), "application/json");
    EXPECT_EQ(answer->status, 200) << path << answer->body;
    return text_of(Json::parse(answer->body));
  };
  EXPECT_EQ(text("/completions"), text(kText));
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 5}};
  EXPECT_EQ(client.Post("/chat/completions", chat.dump(), "application/json")->status, 200);
  EXPECT_EQ(client.Post("/embeddings", R"({"input": "x"})", "application/json")->status, 200);
  EXPECT_EQ(client.Post("/v1/tokenize", R"({"content": "x"})", "application/json")->status, 200);
  EXPECT_EQ(client.Get("/completions")->status, 405);
  EXPECT_EQ(client.Get("/v1/api/tags")->status, 404);
  EXPECT_EQ(client.Get("/v2/models")->status, 404);
  EXPECT_EQ(client.Get("/v1/v1/models")->status, 404);
}

TEST(LlamaServer, AnyModelNameUnlessStrict) {
  Json body = kShort;
  body["model"] = "gpt-4";
  {
    Running server;
    EXPECT_EQ(server.answer(kText, body)["model"], "stories");
    EXPECT_EQ(server.post("/v1/embeddings", {{"input", "x"}, {"model", "gpt-4"}})->status, 200);
  }
  ServerSetup setup;
  setup.strict_model = true;
  setup.aliases = {"tales", "gpt-3"};
  Running server(setup);
  const auto [status, message] = server.refusal(kText, body);
  EXPECT_EQ(status, 404);
  EXPECT_NE(message.find("there is no model 'gpt-4': this is 'stories'"), std::string::npos) << message;
  body["model"] = "tales";
  EXPECT_EQ(server.answer(kText, body)["model"], "stories");
  const Json models = Json::parse(server.client().Get("/v1/models")->body);
  EXPECT_EQ(models["data"][0]["aliases"], Json::array({"tales", "gpt-3"}));
  EXPECT_EQ(server.client().Get("/v1/models/gpt-3")->status, 200);
  EXPECT_EQ(server.client().Get("/v1/models/gpt-4")->status, 404);
}

TEST(LlamaServer, TimingsAndFingerprint) {
  Running server;
  const auto check = [](const Json& timings, const Json& usage) {
    ASSERT_TRUE(timings.is_object());
    EXPECT_EQ(timings["predicted_n"], 12);
    EXPECT_EQ(timings["prompt_n"].get<int>() + timings["cache_n"].get<int>(), usage["prompt_tokens"]);
    const double ms = timings["predicted_ms"];
    EXPECT_GT(ms, 0);
    EXPECT_NEAR(timings["predicted_per_token_ms"].get<double>(), ms / 12, 1e-6 * ms);
    EXPECT_NEAR(timings["predicted_per_second"].get<double>(), 12000 / ms, 1e-3 / ms * 12000);
    EXPECT_GT(timings["prompt_ms"], 0);
  };
  const Json whole = server.answer(kText, kShort);
  EXPECT_TRUE(whole["system_fingerprint"].get<std::string>().starts_with("build-palimpsest-"));
  check(whole["timings"], whole["usage"]);
  Json body = kShort;
  body["stream"] = true;
  const auto plain = events(server.post(kText, body)->body);
  for (const Json& event : plain) EXPECT_EQ(event.contains("timings"), &event == &plain.back());
  check(plain.back()["timings"], whole["usage"]);
  body["stream_options"] = {{"include_usage", true}};
  const auto with_usage = events(server.post(kText, body)->body);
  for (const Json& event : with_usage) EXPECT_EQ(event.contains("timings"), &event == &with_usage.back());
  check(with_usage.back()["timings"], with_usage.back()["usage"]);
}

const char* const kCompletion = "/completion";

TEST(LlamaServer, Completion) {
  Running server;
  Json body = {{"prompt", "Once upon a time"}, {"n_predict", 12}, {"temperature", 0}, {"ignore_eos", true}};
  const Json whole = server.answer(kCompletion, body);
  EXPECT_EQ(whole["content"], text_of(server.answer(kText, kShort)));
  EXPECT_EQ(whole["tokens"], Json::array());
  EXPECT_EQ(whole["stop"], true);
  EXPECT_EQ(whole["stop_type"], "limit");
  EXPECT_EQ(whole["stopping_word"], "");
  EXPECT_EQ(whole["tokens_predicted"], 12);
  EXPECT_EQ(whole["tokens_evaluated"], served_vocabulary()->tokenize("Once upon a time", true, true).size());
  EXPECT_EQ(whole["generation_settings"]["n_predict"], 12);
  EXPECT_EQ(whole["generation_settings"]["temperature"], 0);
  EXPECT_EQ(whole["timings"]["predicted_n"], 12);
  EXPECT_EQ(whole["truncated"], false);
  EXPECT_NE(whole["prompt"].get<std::string>().find("Once upon a time"), std::string::npos);

  body["return_tokens"] = true;
  const Json tokens = server.answer(kCompletion, body)["tokens"];
  ASSERT_EQ(tokens.size(), 12u);
  std::string pieces;
  for (const Json& token : tokens) pieces += served_vocabulary()->piece(token.get<TokenId>());
  EXPECT_EQ(pieces, whole["content"].get<std::string>());

  body["response_fields"] = {"content", "generation_settings/n_predict", "nothing"};
  EXPECT_EQ(server.answer(kCompletion, body),
            (Json{{"content", whole["content"]}, {"generation_settings/n_predict", 12}}));
}

TEST(LlamaServer, CompletionInAStream) {
  Running server;
  Json body = {{"prompt", "Once upon a time"}, {"n_predict", 60}, {"temperature", 0}, {"stop", {"."}},
               {"return_tokens", true},        {"n_probs", 2}};
  const Json whole = server.answer(kCompletion, body);
  EXPECT_EQ(whole["stop_type"], "word");
  EXPECT_EQ(whole["stopping_word"], ".");
  const Json& probabilities = whole["completion_probabilities"];
  ASSERT_EQ(probabilities.size(), whole["tokens"].size());
  EXPECT_EQ(probabilities[0]["id"], whole["tokens"][0]);
  EXPECT_EQ(probabilities[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(probabilities[0]["top_logprobs"][0]["id"], whole["tokens"][0]);
  EXPECT_EQ(probabilities[0]["top_logprobs"][0]["logprob"], probabilities[0]["logprob"]);

  body["stream"] = true;
  const std::string stream = server.post(kCompletion, body)->body;
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);  // llama-server has it in OpenAI's API only
  const auto parts = events(stream + "data: [DONE]\n\n");
  std::string text;
  std::vector<Json> tokens;
  for (const Json& part : parts) {
    text += part["content"];
    for (const Json& token : part["tokens"]) tokens.push_back(token);
    EXPECT_EQ(part["stop"], &part == &parts.back());
  }
  EXPECT_EQ(Json(text), whole["content"]);
  EXPECT_EQ(tokens, std::vector<Json>(whole["tokens"].begin(), whole["tokens"].end()));
  EXPECT_EQ(parts.back()["stop_type"], "word");
  EXPECT_EQ(parts.back()["tokens_predicted"], whole["tokens_predicted"]);
}

TEST(LlamaServer, CompletionsPromptsShapesAndRefusals) {
  Running server;
  const auto content = [&](const Json& prompt) {
    const Json answer = server.answer(kCompletion, {{"prompt", prompt}, {"n_predict", 8}, {"temperature", 0}});
    return answer.is_array() ? answer : answer["content"];
  };
  const auto tokens = served_vocabulary()->tokenize("Once upon a time", true, true);
  const Json text = content("Once upon a time");
  EXPECT_EQ(content(tokens), text);
  EXPECT_EQ(content({{"prompt_string", "Once upon a time"}}), text);
  Json mixed = tokens;
  mixed.push_back(" there");
  EXPECT_TRUE(content(mixed).is_string());
  const Json several = content({"Once upon a time", "The cat"});
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0]["content"], text);
  EXPECT_EQ(several[1]["index"], 1);
  const Json shaped =
      server.answer(kCompletion, {{"prompt", "x"}, {"n_predict", 40}, {"json_schema", {{"enum", {"yes", "no"}}}}});
  EXPECT_TRUE(shaped["content"] == "\"yes\"" || shaped["content"] == "\"no\"") << shaped;
  EXPECT_EQ(shaped["stop_type"], "eos");
  // Without n_predict: until the trained context ends.
  const Json endless = server.answer(kCompletion, {{"prompt", "x"}, {"ignore_eos", true}});
  EXPECT_EQ(endless["tokens_predicted"].get<int>() + endless["tokens_evaluated"].get<int>(),
            served_vocabulary()->trained_context());
  const auto refused = [&](const Json& fields, const char* part) {
    Json body = {{"prompt", "x"}};
    body.update(fields);
    const auto [status, message] = server.refusal(kCompletion, body);
    EXPECT_EQ(status, 400);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused({{"n_probs", 21}}, "'n_probs' must be");
  refused({{"temperature", "hot"}}, "'temperature' must be a number");
  refused({{"response_fields", "content"}}, "'response_fields' must be a list");
  refused({{"lora", {{{"id", 0}}}}}, "'lora' is not supported");
  refused({{"messages", 1}}, "'messages' is not supported here");
}

}  // namespace
}  // namespace palimpsest::testing
