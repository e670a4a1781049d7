// Endpoints and fields beside the completions themselves: CORS, hints, biases, log probabilities of prompts, tokens,
// properties, pings.
#include <cmath>

#include "palimpsest/engine/sequence/session.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

TEST(ServerApi, PagesOfTheGivenOriginMayCall) {
  ServerSetup setup;
  setup.server.cors_origin = "https://a.example";
  setup.server.api_keys = {"secret"};
  const Running running(setup);
  const auto preflight = running.client().Options(
      kChat, {{"Origin", "https://a.example"}, {"Access-Control-Request-Headers", "authorization,x-stainless-lang"}});
  ASSERT_TRUE(preflight);
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->get_header_value("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(preflight->get_header_value("Access-Control-Allow-Headers"), "authorization,x-stainless-lang");
  EXPECT_NE(preflight->get_header_value("Access-Control-Allow-Methods").find("POST"), std::string::npos);
  const auto get = [&](const char* origin) { return running.client().Get("/health", {{"Origin", origin}}); };
  EXPECT_EQ(get("https://a.example")->get_header_value("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_FALSE(get("https://b.example")->has_header("Access-Control-Allow-Origin"));
  const auto other = running.client().Options(kChat, {{"Origin", "https://b.example"}});
  EXPECT_FALSE(other->has_header("Access-Control-Allow-Origin"));
  EXPECT_NE(other->status, 204);

  const Running closed{};
  EXPECT_FALSE(
      closed.client().Get("/health", {{"Origin", "https://a.example"}})->has_header("Access-Control-Allow-Origin"));
  setup.server.cors_origin = "*";
  setup.server.api_keys = {};
  const Running open(setup);
  EXPECT_EQ(open.client().Get("/health", {{"Origin", "null"}})->get_header_value("Access-Control-Allow-Origin"), "*");
}

class ApiTest : public ::testing::Test {
 protected:
  Running running_;
};

TEST_F(ApiTest, HintsChangeNothing) {
  const Json plain = {{"prompt", "Once"}, {"max_tokens", 8}, {"seed", 1}};
  const std::string text = text_of(running_.answer(kText, plain));
  for (const char* hint :
       {R"({"cache_prompt":true})", R"({"prompt_cache_key":"x"})", R"({"priority":3})", R"({"id_slot":-1})",
        R"({"best_of":1})", R"({"suffix":""})", R"({"max_completion_tokens":8})", R"({"logit_bias":{}})"}) {
    Json body = plain;
    body.merge_patch(Json::parse(hint));
    EXPECT_EQ(text_of(running_.answer(kText, body)), text) << hint;
  }
  for (const char* other : {R"({"best_of":3})", R"({"suffix":"end"})", R"({"max_completion_tokens":9})",
                            R"({"use_beam_search":true})", R"({"tfs_z":0.5})"}) {
    Json body = plain;
    body.merge_patch(Json::parse(other));
    EXPECT_EQ(running_.refusal(kText, body).first, 400) << other;
  }
}

// What lm-evaluation-harness needs to use the server's tokenizer.
TEST_F(ApiTest, TheTokenizersProperties) {
  const Json info = Json::parse(running_.client().Get("/tokenizer_info")->body);
  const auto words = served_vocabulary();
  for (const auto& [name, token] : {std::pair("bos_token", words->bos()), std::pair("eos_token", words->eos())})
    EXPECT_EQ(running_.answer("/tokenize", {{"prompt", info[name]}, {"add_special_tokens", false}})["tokens"],
              Json::array({token}));
  EXPECT_EQ(info["vocab_size"], words->size());
  EXPECT_NE(info["chat_template"].get<std::string>().find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(running_.client().Post("/tokenizer_info", "{}", "application/json")->status, 405);
}

// A schema that refers to itself has no value: a strict tool is refused, another takes any object.
TEST_F(ApiTest, ASchemaWithoutAValueIsTheClientsMistake) {
  Json function = {{"name", "f"}, {"strict", true}, {"parameters", {{"$ref", "#"}}}};
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
               {"max_tokens", 50},
               {"tool_choice", "required"},
               {"tools", Json::array({{{"type", "function"}, {"function", function}}})}};
  const auto [status, message] = running_.refusal(kChat, body);
  EXPECT_EQ(status, 400) << message;
  body["tools"][0]["function"]["strict"] = false;
  EXPECT_EQ(running_.post(kChat, body)->status, 200);
}

TEST_F(ApiTest, BiasesForbidAndPrefer) {
  const auto words = served_vocabulary();
  const TokenId dog = words->tokenize(" dog", false, false).back();
  Json body = {{"prompt", "Once"}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}, {"logprobs", 0}};
  const Json before = running_.answer(kText, body)["choices"][0]["logprobs"]["tokens"];
  const TokenId first = words->tokenize("Once" + before[0].get<std::string>(), false, false).back();
  body["logit_bias"] = {{std::to_string(first), -100}};
  EXPECT_NE(running_.answer(kText, body)["choices"][0]["logprobs"]["tokens"][0], before[0]);
  body["logit_bias"] = {{std::to_string(dog), 100}};
  const Json after = running_.answer(kText, body);
  for (const Json& token : after["choices"][0]["logprobs"]["tokens"])
    EXPECT_EQ(token.get<std::string>(), words->piece(dog));
  for (const char* wrong : {R"({"x":1})", R"({"1":"x"})", R"({"1":1000})", R"({"999999":1})", R"([1])"}) {
    body["logit_bias"] = Json::parse(wrong);
    EXPECT_EQ(running_.refusal(kText, body).first, 400) << wrong;
  }
}

// As lm-evaluation-harness asks: the log probabilities of a text, each token given those before.
TEST_F(ApiTest, PromptsHaveLogProbabilities) {
  const auto words = served_vocabulary();
  const std::string text = "Once upon a time there was a little dog.";
  const auto tokens = words->tokenize(text, true, true);
  const Json body = {{"prompt", tokens}, {"max_tokens", 1}, {"logprobs", 2},         {"echo", true},
                     {"temperature", 0}, {"seed", 1},       {"cache", "method=full"}};
  Json full = body;
  full["cache"] = "full";
  const Json choice = running_.answer(kText, full)["choices"][0];
  const Json& logs = choice["logprobs"];
  ASSERT_EQ(logs["token_logprobs"].size(), tokens.size() + 1);
  EXPECT_TRUE(logs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logs["top_logprobs"][0].is_null());
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with(text)) << choice["text"];

  SessionOptions options;
  options.method = parse_method("full");
  options.cache_type = CacheType::kF32;
  options.page_size = 16;
  Session session(std::make_shared<Decoder>(served_model(), 1), options);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::span<const float> logits = session.decode(tokens[i]);
    const float top = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
    const double expected = logits[static_cast<std::size_t>(tokens[i + 1])] - top - std::log(sum);
    EXPECT_NEAR(logs["token_logprobs"][i + 1].get<double>(), expected, 1e-4) << i;
    EXPECT_EQ(logs["top_logprobs"][i + 1].size(), 2u);
  }

  full["max_tokens"] = 0;
  full["n"] = 2;
  const Json scored = running_.answer(kText, full);
  EXPECT_EQ(scored["choices"].size(), 2u);
  EXPECT_EQ(scored["choices"][1]["text"], text);
  EXPECT_EQ(scored["choices"][1]["logprobs"]["token_logprobs"].size(), tokens.size());
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  EXPECT_EQ(scored["usage"]["prompt_tokens"], static_cast<int>(tokens.size()));
  full["stop"] = ".";
  EXPECT_EQ(running_.refusal(kText, full).first, 400);
  EXPECT_EQ(running_.refusal(kText, {{"prompt", "x"}, {"max_tokens", 0}}).first, 400);
}

TEST_F(ApiTest, TokensInBothForms) {
  const auto words = served_vocabulary();
  const Json bare = running_.answer("/tokenize", {{"content", "A dog."}});
  EXPECT_EQ(bare["tokens"].get<std::vector<TokenId>>(), words->tokenize("A dog.", false, true));
  const Json pieces =
      running_.answer("/tokenize", {{"content", "A dog."}, {"add_special", true}, {"with_pieces", true}});
  EXPECT_EQ(pieces["tokens"][0]["id"], words->bos());
  std::string joined;
  for (const Json& token : pieces["tokens"])
    if (token["id"] != words->bos()) joined += token["piece"].get<std::string>();
  EXPECT_NE(joined.find("dog."), std::string::npos);
  const Json text = running_.answer("/detokenize", {{"tokens", bare["tokens"]}});
  EXPECT_EQ(text["content"], "A dog.");
  EXPECT_EQ(text["prompt"], "A dog.");
  EXPECT_EQ(running_.refusal("/tokenize", {{"content", "x"}, {"prompt", "x"}}).first, 400);
}

TEST_F(ApiTest, PropertiesSlotsAndTemplate) {
  const auto get = [&](const char* path) { return Json::parse(running_.client().Get(path)->body); };
  const Json props = get("/props");
  EXPECT_EQ(props["total_slots"], 64);
  EXPECT_NE(props["chat_template"].get<std::string>().find("im_start"), std::string::npos);
  EXPECT_EQ(props["bos_token"], served_vocabulary()->piece(served_vocabulary()->bos(), true));
  const Json slots = get("/slots");
  EXPECT_EQ(slots.size(), 64u);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_EQ(running_.answer("/apply-template", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}})["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(running_.client().Post("/props")->status, 405);
}

TEST(ServerApi, LongPromptsArePinged) {
  ServerSetup setup;
  setup.server.ping_interval = std::chrono::milliseconds(1);
  setup.scheduler.chunk = 16;
  const Running running(setup);
  std::string prompt;
  for (int i = 0; i < 3000; ++i) prompt += "a dog and ";
  const auto result = running.post(kText, {{"prompt", prompt}, {"max_tokens", 2}, {"stream", true}});
  EXPECT_NE(result->body.find(": ping\n\n"), std::string::npos);
  EXPECT_NE(result->body.find("data: [DONE]"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
