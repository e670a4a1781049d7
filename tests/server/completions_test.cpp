// Completions: streams, whole answers and single sessions agree; stop strings, logprobs, several answers.
#include <map>

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

std::map<int, std::string> texts(const std::vector<Json>& pieces) {
  std::map<int, std::string> out;
  for (const Json& piece : pieces)
    for (const Json& choice : piece["choices"]) {
      const bool chat = choice.contains("delta");
      const Json& holder = chat ? choice["delta"] : choice;
      const char* name = chat ? "content" : "text";
      if (holder.contains(name)) out[choice["index"]] += holder[name].get<std::string>();
    }
  return out;
}

class Completions : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { running_ = new Running; }  // one for all
  static void TearDownTestSuite() {
    delete running_;
    running_ = nullptr;
  }
  std::string stream(const char* path, Json body) {
    body["stream"] = true;
    const auto result = running_->post(path, body);
    EXPECT_TRUE(result && result->status == 200);
    return result ? result->body : "";
  }
  static Running* running_;
};
Running* Completions::running_ = nullptr;

TEST_F(Completions, StreamWholeAndSingleSessionAgree) {
  for (const float temperature : {0.0F, 0.9F}) {
    for (const std::string method : {"streaming:budget=64", "h2o:budget=48,positions=cache", "full"}) {
      const Json body = {{"prompt", "Once upon a time"},
                         {"max_tokens", 150},
                         {"temperature", temperature},
                         {"seed", 7},
                         {"cache", method}};
      const std::string whole = text_of(running_->answer(kText, body));
      EXPECT_GT(whole.size(), 20u);
      EXPECT_EQ(whole, alone("Once upon a time", method, 150, temperature, 7)) << method;
      EXPECT_EQ(whole, texts(events(stream(kText, body)))[0]) << method;
    }
  }
}

TEST_F(Completions, ManyAtATimeAreWhatTheyAreAlone) {
  const std::vector<std::string> prompts = {"Once upon a time", "One day, a boy", "The dog", "Lily and Tom", "A bird"};
  std::vector<std::string> got(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] {
      const Json body = {{"prompt", prompts[i]},
                         {"max_tokens", 100},
                         {"seed", i},
                         {"temperature", 1},
                         {"cache", {{"method", i % 2 == 0 ? "streaming" : "h2o"}, {"budget", 40 + 8 * i}}}};
      const auto pieces = events(stream(kText, body));
      got[i] = texts(pieces)[0];
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(got[i], alone(prompts[i], fmt::format("{}:budget={}", i % 2 == 0 ? "streaming" : "h2o", 40 + 8 * i), 100,
                            1, static_cast<std::uint32_t>(i)))
        << prompts[i];
}

TEST_F(Completions, UsageCountsWhatWasEvicted) {
  const Json body = {{"prompt", "Once upon a time"},
                     {"max_tokens", 90},
                     {"ignore_eos", true},
                     {"cache", {{"method", "streaming"}, {"budget", 32}}}};
  const Json usage = running_->answer(kText, body)["usage"];
  const auto prompt = static_cast<int>(served_vocabulary()->tokenize("Once upon a time", true, true).size());
  EXPECT_EQ(usage["prompt_tokens"], prompt);
  EXPECT_EQ(usage["completion_tokens"], 90);
  EXPECT_EQ(usage["total_tokens"], prompt + 90);
  EXPECT_EQ(usage["evicted_tokens"], prompt + 89 - 32);  // the last token is not inserted

  Json streamed = body;
  streamed["stream_options"] = {{"include_usage", true}};
  const auto pieces = events(stream(kText, streamed));
  EXPECT_TRUE(pieces.back()["choices"].empty());
  EXPECT_EQ(pieces.back()["usage"], usage);
}

TEST_F(Completions, DraftsDoNotChangeTheAnswer) {
  Json body = {{"prompt", "Once upon a time, once upon a time, once upon a time, once upon"},
               {"max_tokens", 90},
               {"ignore_eos", true},
               {"temperature", 0},
               {"cache", "h2o:budget=48,every=8"}};
  const Json without = running_->answer(kText, body);
  EXPECT_FALSE(without["usage"].contains("completion_tokens_details"));
  body["speculative"] = {{"type", "lookup"}, {"max", 6}};
  const Json with = running_->answer(kText, body);
  EXPECT_EQ(text_of(with), text_of(without));
  const Json& details = with["usage"]["completion_tokens_details"];
  EXPECT_GE(details["accepted_prediction_tokens"], 0);
  EXPECT_GT(details["accepted_prediction_tokens"].get<int>() + details["rejected_prediction_tokens"].get<int>(), 0);

  body["cache"] = "tova:budget=48";
  EXPECT_NE(running_->refusal(kText, body).second.find("every=7"), std::string::npos);
  body["cache"] = "full";
  for (const Json& bad : {Json{{"type", "magic"}}, Json{{"max", 0}}, Json{{"max", 64}}, Json{{"min", 9}},
                          Json{{"length", 3}}, Json("lookup")}) {
    body["speculative"] = bad;
    const auto [status, message] = running_->refusal(kText, body);
    EXPECT_EQ(status, 400) << bad;
    EXPECT_NE(message.find("speculative"), std::string::npos) << message;
  }
}

TEST_F(Completions, UsageCountsWhatOthersHadRead) {
  ServerSetup setup;
  setup.scheduler.chunk = 16;
  setup.scheduler.prefix_bytes = setup.scheduler.pool_bytes / 2;
  Running server(setup);
  const std::string text = "Once upon a time there was a little girl who lived with her dog and her cat in a big house";
  Json body = {{"prompt", text}, {"max_tokens", 20}, {"temperature", 0}, {"n", 2}, {"cache", "h2o:budget=24"}};
  const auto cached = [&] { return server.answer(kText, body)["usage"]["prompt_tokens_details"]["cached_tokens"]; };
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(cached(), 16);
  body["prompt"] = {text, "A cat", text + ", all alone"};
  EXPECT_EQ(cached(), 32) << "of each prompt once";
  EXPECT_EQ(text_of(server.answer(kText, body)), alone(text, "h2o:budget=24", 20, 0, 0));
  EXPECT_TRUE(server.idle_within(5));
  EXPECT_GT(server.load().prefix_bytes, 0u);
}

TEST_F(Completions, StopStringsEndTheText) {
  const std::string free = alone("Once upon a time", "streaming:budget=128", 120, 0, 0);
  const std::string stop = free.substr(30, 6);
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 120}, {"temperature", 0}, {"stop", stop}};
  const Json answer = running_->answer(kText, body);
  EXPECT_EQ(text_of(answer), free.substr(0, free.find(stop)));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  body["stop"] = {"never written", stop};
  const auto pieces = events(stream(kText, body));
  EXPECT_EQ(texts(pieces)[0], text_of(answer));
  EXPECT_EQ(pieces.back()["choices"][0]["finish_reason"], "stop");
}

TEST_F(Completions, SeveralAnswersAreNumberedAndTheFirstIsTheOnlyOne) {
  Json body = {{"prompt", {"The cat", "The dog"}}, {"max_tokens", 40}, {"temperature", 1}, {"seed", 3}, {"n", 3}};
  const Json answer = running_->answer(kText, body);
  ASSERT_EQ(answer["choices"].size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  EXPECT_EQ(text_of(answer, 0), alone("The cat", "streaming:budget=128", 40, 1, 3));
  EXPECT_EQ(text_of(answer, 4), alone("The dog", "streaming:budget=128", 40, 1, 4));
  EXPECT_NE(text_of(answer, 0), text_of(answer, 1));
  const auto streamed = texts(events(stream(kText, body)));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(streamed.at(i), text_of(answer, i));
}

TEST_F(Completions, TokensAsAPromptAndEcho) {
  const std::string prompt = "Once upon a time";
  const Json said = {{"prompt", prompt}, {"max_tokens", 20}, {"temperature", 0}, {"echo", true}};
  const std::string text = text_of(running_->answer(kText, said));
  EXPECT_EQ(text, prompt + alone(prompt, "streaming:budget=128", 20, 0, 0));
  Json counted = said;
  counted["echo"] = false;
  counted["prompt"] = running_->answer("/tokenize", {{"prompt", prompt}})["tokens"];
  EXPECT_EQ(prompt + text_of(running_->answer(kText, counted)), text);
  EXPECT_EQ(texts(events(stream(kText, said)))[0], text);
}

TEST_F(Completions, LogarithmsBelongToTheTokens) {
  const Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 30}, {"temperature", 0}, {"logprobs", 3}};
  const Json answer = running_->answer(kText, body);
  const Json& logs = answer["choices"][0]["logprobs"];
  ASSERT_EQ(logs["tokens"].size(), logs["token_logprobs"].size());
  std::string joined;
  for (std::size_t i = 0; i < logs["tokens"].size(); ++i) {
    EXPECT_EQ(logs["text_offset"][i], joined.size());
    joined += logs["tokens"][i].get<std::string>();
    EXPECT_LE(logs["token_logprobs"][i], 0.0);
    ASSERT_EQ(logs["top_logprobs"][i].size(), 3u);
    EXPECT_EQ(logs["top_logprobs"][i].front(), logs["token_logprobs"][i]);  // greedy: the most likely token
  }
  EXPECT_EQ(joined, text_of(answer));

  Json streamed = Json::array();
  for (const Json& piece : events(stream(kText, body)))
    if (const Json& some = piece["choices"][0]["logprobs"]; !some.is_null())
      for (const Json& each : some["token_logprobs"]) streamed.push_back(each);
  EXPECT_EQ(streamed, logs["token_logprobs"]);
}

TEST_F(Completions, LogarithmsEndWhereTheTextIsStopped) {
  const std::string free = alone("Once upon a time", "streaming:budget=128", 60, 0, 0);
  const Json body = {{"prompt", "Once upon a time"},
                     {"max_tokens", 60},
                     {"temperature", 0},
                     {"logprobs", 0},
                     {"stop", free.substr(40, 5)}};
  const Json choice = running_->answer(kText, body)["choices"][0];
  std::string joined;
  for (const Json& token : choice["logprobs"]["tokens"]) joined += token.get<std::string>();
  EXPECT_TRUE(joined.starts_with(choice["text"].get<std::string>())) << joined;
  EXPECT_LT(choice["logprobs"]["text_offset"].back(), choice["text"].get<std::string>().size());
}

TEST_F(Completions, AChatIsItsTemplateContinued) {
  const Json messages = {
      {{"role", "system"}, {"content", "You tell stories."}},
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Tell me"}}, {{"type", "text"}, {"text", "one."}}}}}};
  const std::string text = ChatTemplate::load(served_vocabulary(), "chatml")
                               ->text({{"system", "You tell stories."}, {"user", "Tell me\none."}});
  Json body = {{"model", "stories"}, {"messages", messages}, {"max_completion_tokens", 60},
               {"seed", 5},          {"logprobs", true},     {"top_logprobs", 2},
               {"temperature", 1}};
  const Json answer = running_->answer(kChat, body);
  EXPECT_EQ(answer["object"], "chat.completion");
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"].get<std::string>(), alone(text, "streaming:budget=128", 60, 1, 5));
  std::string bytes;
  for (const Json& token : choice["logprobs"]["content"]) {
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, choice["message"]["content"].get<std::string>());

  const auto pieces = events(stream(kChat, body));
  EXPECT_EQ(pieces.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(pieces.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(texts(pieces)[0], choice["message"]["content"].get<std::string>());
}

TEST_F(Completions, SchemasAreObeyed) {
  const Json schema = Json::parse(R"({
    "type": "object", "additionalProperties": false, "required": ["name", "age", "tags", "pet"],
    "properties": {
      "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}, "tall": {"type": "boolean"},
      "tags": {"type": "array", "items": {"enum": ["red", "blue", 3, null]}, "minItems": 1, "maxItems": 3},
      "pet": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Pet"}]}},
    "$defs": {"Pet": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}}})");
  for (int seed = 0; seed < 5; ++seed) {
    const Json body = {
        {"messages", {{{"role", "user"}, {"content", "x"}}}},
        {"max_tokens", 300},
        {"seed", seed},
        {"response_format",
         {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}}}};
    const Json answer = running_->answer(kChat, body);
    const Json value = Json::parse(answer["choices"][0]["message"]["content"].get<std::string>());
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_TRUE(value["age"].is_number_integer());
    EXPECT_TRUE(value["tags"].is_array() && !value["tags"].empty() && value["tags"].size() <= 3) << value;
    EXPECT_TRUE(value["pet"].is_null() || value["pet"]["kind"] == "cat") << value;
    EXPECT_TRUE(!value.contains("tall") || value["tall"].is_boolean()) << value;
  }
}

TEST_F(Completions, AGrammarIsObeyedAndOneThatCannotBeReadRefused) {
  const Json body = {{"prompt", "x"}, {"max_tokens", 50}, {"grammar", R"(root ::= "yes" | "no")"}};
  const std::string text = text_of(running_->answer(kText, body));
  EXPECT_TRUE(text == "yes" || text == "no") << text;
  EXPECT_EQ(running_->refusal(kText, {{"prompt", "x"}, {"grammar", "root ::= ("}}).first, 400);
  // Readable, but too ambiguous after some tokens.
  const char* const ambiguous = "root ::= w{0,500}\nw ::= [a-z ]{0,500} [a-z ]{0,500}";
  EXPECT_EQ(running_->refusal(kText, {{"prompt", "Once"}, {"max_tokens", 200}, {"grammar", ambiguous}}).first, 400);
}

}  // namespace
}  // namespace palimpsest::testing
