// Chats that resend all their messages.
#include <algorithm>

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

const char* const kChatMessages[] = {"Tell me a story about a cat.",
                                     "And a dog?",
                                     "What did they do then?",
                                     "Why?",
                                     "Who was sad?",
                                     "How did it end? Tell me all of it, please."};

struct Turn {
  long long prompt = 0, cached = 0;
};

// A client as most are: each request has all messages. Its answers are sampled, so that their tokens are often not the
// tokenizer's.
class Client {
 public:
  explicit Client(Running& server, Json more = {}, std::string key = {})
      : server_(server), more_(std::move(more)), key_(std::move(key)) {}

  Turn say(const std::string& message) {
    messages_.push_back({{"role", "user"}, {"content", message}});
    Json body = {{"messages", messages_}, {"max_tokens", 40}, {"seed", messages_.size()}};
    if (more_.is_object()) body.update(more_);
    httplib::Headers headers;
    if (!key_.empty()) headers.emplace("Authorization", "Bearer " + key_);
    const auto result = server_.post(kChat, body, headers);
    EXPECT_TRUE(result && result->status == 200) << (result ? result->body : "no answer");
    const Json answer = Json::parse(result->body);
    messages_.push_back({{"role", "assistant"}, {"content", answer["choices"][0]["message"]["content"]}});
    const Json& usage = answer["usage"];
    return {.prompt = usage["prompt_tokens"], .cached = usage["prompt_tokens_details"]["cached_tokens"]};
  }
  Json& messages() { return messages_; }

 private:
  Running& server_;
  Json more_, messages_ = Json::array();
  std::string key_;
};

ServerSetup with_prefixes(std::vector<std::string> keys = {}) {
  ServerSetup setup;
  setup.scheduler.prefix_bytes = std::size_t{64} << 20;
  setup.scheduler.pool_bytes = std::size_t{128} << 20;
  setup.server.api_keys = std::move(keys);
  return setup;
}

long long tokens_of(const std::string& text) {
  return std::ssize(served_vocabulary()->tokenize(text, false, true));
}

// Once the budget of 64 is full, too. Read are the new message, the template's text around it, and the answer's last
// token: nearly always no token of earlier messages.
TEST(ServedHistory, AResentChatReadsOnlyWhatIsNew) {
  for (const std::string method : {"streaming:budget=64", "h2o:budget=64", "full"}) {
    SCOPED_TRACE(method);
    Running server(with_prefixes());
    Client client(server, {{"cache", method}});
    Turn before;
    int from_answer = 0, turns = 0;
    const long long around = tokens_of("<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n") + 4;
    for (const char* message : kChatMessages) {
      const Turn turn = client.say(message);
      EXPECT_GE(turn.cached, before.prompt) << "at least from the end of the last prompt";
      if (turns++ > 0) from_answer += turn.prompt - turn.cached <= tokens_of(message) + around;
      before = turn;
    }
    EXPECT_GE(from_answer, turns - 2);
    EXPECT_EQ(server.load().history_queries, turns);
    EXPECT_EQ(server.load().history_hits, turns - 1);
    const auto metrics = server.client().Get("/metrics")->body;
    EXPECT_NE(metrics.find("palimpsest_history_cache_hits_total{model_name=\"stories\"} 5"), std::string::npos);
    EXPECT_TRUE(server.idle_within(5));
  }
}

TEST(ServedHistory, AnEditedMessageIsReadFromTheChange) {
  Running server(with_prefixes());
  Client client(server);
  std::vector<Turn> turns;
  for (const char* message : kChatMessages) turns.push_back(client.say(message));
  auto& list = client.messages().get_ref<Json::array_t&>();
  list.resize(6);  // after the third answer
  EXPECT_GE(client.say("Once more, but with a bird.").cached, turns[2].prompt);
  list.resize(2);
  list[1]["content"] = "No.";  // an answer that the model did not give
  const Turn turn = client.say("No?");
  EXPECT_GE(turn.cached, turns[0].prompt - 1);
  EXPECT_LE(turn.cached, turns[0].prompt);
}

TEST(ServedHistory, CachePromptFalseTakesAndLeavesNothing) {
  Running server(with_prefixes());
  Client client(server, {{"cache_prompt", false}, {"prompt_cache_key", "x"}});
  for (const char* message : kChatMessages) EXPECT_EQ(client.say(message).cached, 0);
  EXPECT_EQ(server.load().prefix_bytes, 0u);
  EXPECT_EQ(server.load().history_queries, 0);
  EXPECT_EQ(server.refusal(kChat, {{"messages", client.messages()}, {"cache_prompt", 1}}).first, 400);
}

// Completions do not change by default: see PrefixCaching in docs/server.md.
TEST(ServedHistory, CompletionsContinueOnlyIfTheyAsk) {
  Running server(with_prefixes());
  const auto cached = [&](const std::string& prompt, Json more) {
    Json body = {{"prompt", prompt}, {"max_tokens", 20}, {"temperature", 0}};
    body.update(more);
    const Json answer = server.answer(kText, body);
    EXPECT_TRUE(more.contains("cache_prompt") || text_of(answer) == alone(prompt, "streaming:budget=128", 20, 0, 1));
    return std::pair(text_of(answer), answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>());
  };
  const std::string begin = "Once upon a time, there was a cat.";
  const std::string longer = begin + cached(begin, {{"cache_prompt", true}}).first + " Then";
  EXPECT_EQ(cached(longer, Json::object()).second, 0);
  EXPECT_GT(cached(longer, {{"cache_prompt", true}}).second, 20);
}

TEST(ServedHistory, KeysShareNothing) {
  Running server(with_prefixes({"one", "two"}));
  Client one(server, {}, "one");
  for (const char* message : kChatMessages) one.say(message);
  Client two(server, {}, "two"), again(server, {}, "one");
  two.messages() = again.messages() = one.messages();
  EXPECT_EQ(two.say("Bye.").cached, 0);
  EXPECT_GT(again.say("Bye.").cached, 100);
}

// Nothing of the prompt is read again, with every kind of method.
TEST(History, ARegeneratedAnswerIsTheSame) {
  for (const char* cache :
       {"full", "streaming:budget=64", "h2o:budget=64", "snapkv:budget=64", "scissorhands:budget=64", "auto"}) {
    Running server(with_prefixes());
    Json body = {{"messages", {{{"role", "user"}, {"content", "Tell me a long story about a cat, a dog and a bird."}}}},
                 {"max_tokens", 30},
                 {"seed", 3},
                 {"logprobs", true},
                 {"top_logprobs", 2},
                 {"cache", cache}};
    const Json first = server.answer(kChat, body);
    for (int again = 0; again < 2; ++again) {
      const Json next = server.answer(kChat, body);
      EXPECT_EQ(next["choices"], first["choices"]) << cache;
      EXPECT_EQ(next["usage"]["evicted_tokens"], first["usage"]["evicted_tokens"]) << cache;
      EXPECT_EQ(next["usage"]["prompt_tokens_details"]["cached_tokens"], next["usage"]["prompt_tokens"]) << cache;
    }
    body["max_tokens"] = 1;
    EXPECT_EQ(server.answer(kChat, body)["usage"]["completion_tokens"], 1) << cache;
    body["seed"] = 4, body["temperature"] = 2, body["max_tokens"] = 30;
    EXPECT_NE(server.answer(kChat, body)["choices"], first["choices"]) << cache;
    EXPECT_TRUE(server.idle_within(5));
  }
}

}  // namespace
}  // namespace palimpsest::testing
