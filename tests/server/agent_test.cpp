// What agents need: chats that change in their middle, priorities, pins, sessions that end.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kAnthropicMessages = "/v1/messages";

ServerSetup agent_setup() {
  ServerSetup setup;
  setup.scheduler.prefix_bytes = std::size_t{64} << 20;
  setup.scheduler.pool_bytes = std::size_t{128} << 20;
  setup.scheduler.cache_reuse = 16;
  return setup;
}

const char* const kStory =
    "The lost kite flew over the lake, and the old man with the red boat saw it fall between the tall trees. He rowed "
    "home, took his long ladder and his dog, and went to look for it before the rain began.";

Json chat_of(const std::string& clock) {
  return {{{"role", "system"}, {"content", "It is " + clock + " now."}}, {{"role", "user"}, {"content", kStory}}};
}

TEST(Agents, AChangedSystemPromptIsEditedInTheCache) {
  Running server(agent_setup());
  const Json more = {{"max_tokens", 8}, {"temperature", 0}, {"cache", "full"}};
  const auto ask = [&](const char* path, Json body) {
    body.update(more);
    if (path == kResponses) body["max_output_tokens"] = 8, body.erase("max_tokens");
    return server.answer(path, body)["usage"];
  };
  const Json first = ask(kChat, {{"messages", chat_of("nine")}});
  EXPECT_FALSE(first["prompt_tokens_details"].contains("reused_tokens"));
  const Json changed = ask(kChat, {{"messages", chat_of("half past ten")}});
  const Json& details = changed["prompt_tokens_details"];
  EXPECT_GT(details["reused_tokens"], 40);
  EXPECT_GT(details["edited_tokens"], 0);
  EXPECT_LT(details["edited_tokens"], 20);
  EXPECT_GT(details["cached_tokens"], details["reused_tokens"]);  // and what is before the change
  // What remains is the end of the prompt.
  EXPECT_LT(
      changed["prompt_tokens"].get<int>() - details["cached_tokens"].get<int>() - details["edited_tokens"].get<int>(),
      20);

  Json messages = chat_of("noon");
  const Json other = ask(kResponses, {{"input", messages}});
  EXPECT_GT(other["input_tokens_details"]["reused_tokens"], 40);
  messages.erase(0);
  Json body = {{"system", "It is one now."}, {"messages", messages}};
  const Json anthropic = ask(kAnthropicMessages, body);
  EXPECT_GT(anthropic["reused_tokens"], 40);
  EXPECT_GT(anthropic["edited_tokens"], 0);
  const Json never = ask(kChat, {{"messages", chat_of("two")}, {"cache_prompt", false}});
  EXPECT_EQ(never["prompt_tokens_details"], (Json{{"cached_tokens", 0}}));
  const Json exact = ask(kChat, {{"messages", chat_of("three")}, {"n_cache_reuse", 0}});
  EXPECT_FALSE(exact["prompt_tokens_details"].contains("reused_tokens"));
  EXPECT_LT(exact["prompt_tokens_details"]["cached_tokens"], 20);
  EXPECT_TRUE(server.idle_within(5));
}

TEST(Agents, MaySayWhatTheyKnow) {
  Running server(agent_setup());
  const Json plain = {{"messages", chat_of("nine")}, {"max_tokens", 2}};
  const auto with = [&](const char* more) {
    Json body = plain;
    body.merge_patch(Json::parse(more));
    return body;
  };
  for (const char* path : {kChat, kAnthropicMessages})
    for (const char* hint :
         {R"({"priority":-3})", R"({"prompt_cache_key":"agent-1"})", R"({"prompt_cache_retention":"24h"})",
          R"({"prompt_cache_retention":"in_memory"})", R"({"cache_control":{"type":"ephemeral"}})",
          R"({"cache_control":{"type":"ephemeral","ttl":"1h"}})",
          R"({"cache_control":{"type":"ephemeral","ttl":"90s"}})"})
      EXPECT_EQ(server.post(path, with(hint))->status, 200) << path << hint;
  for (const auto& [hint, field] : {std::pair(R"({"priority":"high"})", "priority"),
                                    {R"({"prompt_cache_key":7})", "prompt_cache_key"},
                                    {R"({"cache_control":{"type":"forever"}})", "cache_control.type"},
                                    {R"({"cache_control":{"type":"ephemeral","ttl":"25h"}})", "cache_control.ttl"},
                                    {R"({"cache_control":{"type":"ephemeral","ttl":"5"}})", "cache_control.ttl"},
                                    {R"({"cache_control":{"type":"ephemeral","ttl":"-5m"}})", "cache_control.ttl"}}) {
    const auto [status, message] = server.refusal(kChat, with(hint));
    EXPECT_EQ(status, 400) << hint;
    EXPECT_NE(message.find(field), std::string::npos) << message;
  }
  Json block = {{"type", "text"}, {"text", "x"}, {"cache_control", {{"type", "ephemeral"}, {"ttl", "2 days"}}}};
  const Json body = {{"max_tokens", 2}, {"messages", {{{"role", "user"}, {"content", {block}}}}}};
  EXPECT_NE(server.refusal(kAnthropicMessages, body).second.find("messages[0].content[0].cache_control.ttl"),
            std::string::npos);
  EXPECT_EQ(server.post(kChat, plain, {{"x-session-id", std::string(300, 'x')}})->status, 400);
}

TEST(Agents, AClosedSessionLeavesNothing) {
  Running server(agent_setup());
  const auto kept = [&] {
    EXPECT_TRUE(server.idle_within(5));
    return server.load().prefix_bytes;
  };
  EXPECT_EQ(server.post(kChat, {{"messages", chat_of("nine")}, {"max_tokens", 2}}, {{"x-session-id", "a"}})->status,
            200);
  EXPECT_GT(kept(), 0u);
  const auto close = [&](const char* session) {
    EXPECT_EQ(server.answer("/close_session", {{"session_id", session}}),
              (Json{{"session_id", session}, {"closed", true}}));
    for (int i = 0; i < 200 && server.load().prefix_bytes > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return kept();
  };
  EXPECT_GT(close("b"), 0u);
  EXPECT_EQ(close("a"), 0u);
  EXPECT_EQ(server.refusal("/close_session", Json::object()).first, 400);
  EXPECT_EQ(server.refusal("/close_session", {{"session_id", ""}}).first, 400);
}

}  // namespace
}  // namespace palimpsest::testing
