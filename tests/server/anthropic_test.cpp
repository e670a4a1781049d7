// Anthropic's API: /v1/messages and /v1/messages/count_tokens.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kCount = "/v1/messages/count_tokens";
const httplib::Headers kVersion = {{"anthropic-version", "2023-06-01"}};

struct MessageEvent {
  std::string type;
  Json data;
};

std::vector<MessageEvent> message_events(const std::string& body) {
  std::vector<MessageEvent> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at), line = body.find('\n', at);
    EXPECT_EQ(body.substr(at, 7), "event: ");
    MessageEvent event{body.substr(at + 7, line - at - 7), Json::parse(body.substr(line + 7, end - line - 7))};
    EXPECT_EQ(event.data["type"], event.type);
    if (event.type != "ping") out.push_back(std::move(event));
    at = end + 2;
  }
  return out;
}

// The message of a stream, put together as Anthropic's clients do; checks the order of the events.
Json message_of(const std::vector<MessageEvent>& events) {
  Json message;
  std::string arguments;
  int open = -1;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto& [type, data] = events[i];
    EXPECT_EQ(type == "message_start", i == 0);
    EXPECT_EQ(type == "message_stop", i + 1 == events.size());
    if (type == "message_start") {
      message = data["message"];
    } else if (type == "content_block_start") {
      EXPECT_EQ(open, -1) << "the block before is open";
      open = data["index"];
      EXPECT_EQ(data["index"], message["content"].size());
      message["content"].push_back(data["content_block"]);
      arguments.clear();
    } else if (type == "content_block_delta" || type == "content_block_stop") {
      EXPECT_EQ(data["index"], open);
      Json& block = message["content"].back();
      const Json delta = data.value("delta", Json::object());
      const auto append = [&](const char* name) {
        block[name] = block[name].get<std::string>() + delta[name].get<std::string>();
      };
      if (type == "content_block_stop") {
        open = -1;
        if (block["type"] == "tool_use") block["input"] = Json::parse(arguments);
      } else if (delta["type"] == "text_delta") {
        append("text");
      } else if (delta["type"] == "thinking_delta") {
        append("thinking");
      } else if (delta["type"] == "signature_delta") {
        append("signature");
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        arguments += delta["partial_json"];
      }
    } else if (type == "message_delta") {
      EXPECT_EQ(open, -1);
      message.update(data["delta"]);
      message["usage"] = data["usage"];
    }
  }
  message.erase("id");
  return message;
}

Json user(const Json& content) {
  return {{"role", "user"}, {"content", content}};
}

Json assistant(const Json& content) {
  return {{"role", "assistant"}, {"content", content}};
}

Json message_body(const std::vector<Json>& messages, const Json& more = Json::object()) {
  Json body = {{"messages", Json(messages)}, {"max_tokens", 40}, {"seed", 4}};
  body.update(more);
  return body;
}

Json weather_schema() {
  return Json::parse(R"({"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]}},
    "required":["city"],"additionalProperties":false})");
}

Json weather_tools() {
  return Json::array(
      {{{"name", "get_weather"}, {"description", "Weather"}, {"input_schema", weather_schema()}, {"strict", true}}});
}

class AnthropicTest : public ::testing::Test {
 protected:
  Running running_;

  Json streamed(Json body) const {
    body["stream"] = true;
    const auto result = running_.post(kMessages, body);
    EXPECT_TRUE(result->get_header_value("Content-Type").starts_with("text/event-stream"));
    return message_of(message_events(result->body));
  }
  Json whole(const Json& body) const {
    Json message = running_.answer(kMessages, body);
    EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
    message.erase("id");
    return message;
  }
  // The prompt's tokens in OpenAI's API and in this one: the same, or the test fails.
  void expect_same_prompt(const Json& openai, const Json& body) const {
    const Json chat = {{"messages", openai}, {"max_tokens", 20}, {"seed", 4}};
    const Json expected = running_.answer(kChat, chat), got = whole(body);
    EXPECT_EQ(got["content"][0]["text"], expected["choices"][0]["message"]["content"]);
    EXPECT_EQ(got["usage"]["input_tokens"].get<int>() + got["usage"]["cache_read_input_tokens"].get<int>(),
              expected["usage"]["prompt_tokens"]);
    EXPECT_EQ(running_.answer(kCount, body)["input_tokens"], expected["usage"]["prompt_tokens"]);
  }
};

TEST_F(AnthropicTest, AMessageIsAChat) {
  const Json chat = {
      {"messages", {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "A story."}}}},
      {"max_tokens", 40},
      {"seed", 4}};
  const Json expected = running_.answer(kChat, chat);
  const Json body = message_body({user("A story.")}, {{"model", "claude"}, {"system", "Be brief."}});
  const Json message = whole(body);
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "stories");
  ASSERT_EQ(message["content"].size(), 1u);
  EXPECT_EQ(message["content"][0]["type"], "text");
  EXPECT_EQ(message["content"][0]["text"], expected["choices"][0]["message"]["content"]);
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  EXPECT_EQ(message["usage"]["input_tokens"], expected["usage"]["prompt_tokens"]);
  EXPECT_EQ(message["usage"]["output_tokens"], 40);
  EXPECT_EQ(message["usage"]["cache_creation_input_tokens"], 0);
  EXPECT_EQ(streamed(body), message);
  EXPECT_EQ(running_.answer("/messages", body)["content"], message["content"]);

  Json count = body;
  count.erase("max_tokens");
  EXPECT_EQ(running_.answer(kCount, count), (Json{{"input_tokens", expected["usage"]["prompt_tokens"]}}));
}

TEST_F(AnthropicTest, BlocksAreTexts) {
  const Json system = {{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=2.1.1; cch=1a2b3;"}},
                       {{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}},
                       {{"type", "text"}, {"text", "Be kind."}}};
  const Json more = {{"system", system}, {"max_tokens", 20}};
  const Json before = {{"role", "system"}, {"content", "Be brief.\nBe kind."}};
  const Json hello = {{{"type", "text"}, {"text", "Hello."}}, {{"type", "text"}, {"text", "A story."}}};
  expect_same_prompt({before, user("Hello.\nA story.")}, message_body({user(hello)}, more));
  // Messages of one role in a row are one message.
  expect_same_prompt(
      {before, user("Hello.\nA story."), assistant("Yes.\nNo."), user("Why?")},
      message_body({user("Hello."), user("A story."), assistant("Yes."), assistant("No."), user("Why?")}, more));
  const Json thinking = {{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "x"}},
                         {{"type", "redacted_thinking"}, {"data", "x"}},
                         {{"type", "text"}, {"text", "Yes."}}};
  const Json reasoned = {{"role", "assistant"}, {"content", "Yes."}, {"reasoning_content", "Hm."}};
  expect_same_prompt({before, user("Hello."), reasoned, user("Why?")},
                     message_body({user("Hello."), assistant(thinking), user("Why?")}, more));
}

TEST_F(AnthropicTest, StopSequencesAndSampling) {
  const Json body =
      message_body({user("A story.")}, {{"max_tokens", 200}, {"temperature", 0}, {"top_k", 3}, {"top_p", 0.5}});
  const std::string text = whole(body)["content"][0]["text"];
  const std::string word = text.substr(20, 6);
  Json stopping = body;
  stopping["stop_sequences"] = {"never there", word};
  const Json stopped = whole(stopping);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], word);
  EXPECT_EQ(stopped["content"][0]["text"], text.substr(0, text.find(word)));
  EXPECT_EQ(streamed(stopping), stopped);
}

TEST_F(AnthropicTest, ToolsAreCalledAndTheirResultsRead) {
  Json body = message_body({user("Weather?")}, {{"max_tokens", 300}, {"tools", weather_tools()}});
  for (const Json& choice :
       {Json{{"type", "any"}, {"disable_parallel_tool_use", true}}, Json{{"type", "tool"}, {"name", "get_weather"}}}) {
    body["tool_choice"] = choice;
    const Json message = whole(body);
    EXPECT_EQ(message["stop_reason"], "tool_use");
    ASSERT_EQ(message["content"].size(), 1u) << message;
    const Json& call = message["content"][0];
    EXPECT_EQ(call["type"], "tool_use");
    EXPECT_EQ(call["name"], "get_weather");
    EXPECT_TRUE(call["input"]["city"] == "Rome" || call["input"]["city"] == "Oslo");
    Json stream = streamed(body), expected = message;
    EXPECT_FALSE(call["id"].get<std::string>().empty());
    stream["content"][0].erase("id");
    expected["content"][0].erase("id");
    EXPECT_EQ(stream, expected);
  }
  // A call that is cut off is no JSON: clients get an empty input.
  body["max_tokens"] = 20;
  const Json cut = whole(body);
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  for (const Json& block : cut["content"]) EXPECT_TRUE(block.value("input", Json::object()).is_object());

  const Json called = {{{"type", "text"}, {"text", "I look."}},
                       {{"type", "tool_use"}, {"id", "a"}, {"name", "get_weather"}, {"input", {{"city", "Rome"}}}},
                       {{"type", "tool_use"}, {"id", "b"}, {"name", "get_weather"}, {"input", Json::object()}}};
  const Json results = {
      {{"type", "tool_result"}, {"tool_use_id", "b"}, {"content", "No city."}, {"is_error", true}},
      {{"type", "text"}, {"text", "Well?"}},
      {{"type", "tool_result"}, {"tool_use_id", "a"}, {"content", {{{"type", "text"}, {"text", "Rain."}}}}}};
  const auto call = [](const char* id, const char* arguments) {
    return Json{{"id", id}, {"type", "function"}, {"function", {{"name", "get_weather"}, {"arguments", arguments}}}};
  };
  const Json openai = {{{"role", "user"}, {"content", "Weather?"}},
                       {{"role", "assistant"},
                        {"content", "I look."},
                        {"tool_calls", {call("a", R"({"city":"Rome"})"), call("b", "{}")}}},
                       {{"role", "tool"}, {"tool_call_id", "b"}, {"content", "Error: No city."}},
                       {{"role", "tool"}, {"tool_call_id", "a"}, {"content", "Rain."}},
                       {{"role", "user"}, {"content", "Well?"}}};
  expect_same_prompt(openai, message_body({user("Weather?"), assistant(called), user(results)}, {{"max_tokens", 20}}));
}

TEST_F(AnthropicTest, StructuredText) {
  const Json format = {{"type", "json_schema"}, {"schema", weather_schema()}};
  for (const Json& more :
       {Json{{"output_config", {{"format", format}, {"effort", "low"}}}}, Json{{"output_format", format}}}) {
    Json body = message_body({user("x")}, more);
    body["max_tokens"] = 200;
    EXPECT_TRUE(Json::parse(whole(body)["content"][0]["text"].get<std::string>()).contains("city"));
  }
}

// A template that writes the beginning of the reasoning, so that the reply begins inside.
TEST(Anthropic, ThinkingIsABlock) {
  ServerSetup setup;
  setup.chat_template =
      "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
      "{%- if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content "
      "}}<|im_end|>\n"
      "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n"
      "{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{%- else %}<think>\n"
      "{%- endif %}{%- endif %}";
  const Running running(setup);
  Json body = message_body({user("A story.")}, {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}});
  const Json message = running.answer(kMessages, body);
  ASSERT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["content"][0]["type"], "thinking");
  EXPECT_FALSE(message["content"][0]["thinking"].get<std::string>().empty());
  EXPECT_FALSE(message["content"][0]["signature"].get<std::string>().empty());
  const int tokens = running.answer(kCount, body)["input_tokens"];
  body["stream"] = true;
  const Json streamed = message_of(message_events(running.post(kMessages, body)->body));
  EXPECT_EQ(streamed["content"], message["content"]);
  body["stream"] = false;
  body["thinking"] = {{"type", "disabled"}};
  EXPECT_EQ(running.answer(kMessages, body)["content"][0]["type"], "text");
  EXPECT_GT(running.answer(kCount, body)["input_tokens"], tokens);
  body["thinking"] = {{"type", "adaptive"}};
  EXPECT_EQ(running.answer(kCount, body)["input_tokens"], tokens);
}

TEST_F(AnthropicTest, RefusalsNameTheField) {
  const auto refused = [&](const Json& more) {
    return running_.refusal(kMessages, message_body({user("x")}, more)).second;
  };
  const auto block = [&](const Json& content) {
    return refused({{"messages", Json::array({user(Json::array({content}))})}});
  };
  EXPECT_EQ(refused({{"max_tokens", nullptr}}), "'max_tokens' is missing: give the max tokens of the answer");
  EXPECT_EQ(refused({{"max_tokens", 0}}), "'max_tokens' must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(refused({{"messages", nullptr}}), "'messages' is missing");
  EXPECT_EQ(refused({{"messages", Json::array()}}), "'messages' must be a list of at least one");
  EXPECT_EQ(refused({{"messages", {{{"role", "tool"}, {"content", "x"}}}}}),
            "'messages[0].role' must be user, assistant or system");
  EXPECT_EQ(block({{"type", "image"}, {"source", {{"type", "url"}, {"url", "x"}}}}),
            "'messages[0].content[0].type' is 'image': images are not supported, give text");
  EXPECT_EQ(block({{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", Json::object()}}),
            "'messages[0].content[0].type' is 'tool_use': supported are text and tool_result");
  EXPECT_EQ(block({{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", {{{"type", "image"}}}}}),
            "'messages[0].content[0].content[0].type' is 'image': images are not supported, give text");
  EXPECT_EQ(block({{"type", "tool_result"}, {"content", "x"}}), "'messages[0].content[0].tool_use_id' is missing");
  EXPECT_EQ(block({{"type", "text"}}), "'messages[0].content[0].text' is missing");
  EXPECT_EQ(refused({{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}}),
            "'tools[0].type' is 'web_search_20250305': tools of Anthropic's servers and clients are not supported, "
            "custom is");
  EXPECT_EQ(refused({{"tool_choice", {{"type", "any"}}}}), "'tool_choice' needs 'tools'");
  EXPECT_EQ(refused({{"tools", weather_tools()}, {"tool_choice", {{"type", "tool"}, {"name", "f"}}}}),
            "'tools' has no function 'f'");
  EXPECT_EQ(refused({{"tool_choice", "auto"}}), "'tool_choice' must be a JSON object");
  EXPECT_EQ(refused({{"thinking", {{"type", "x"}}}}), "'thinking.type' must be enabled, adaptive or disabled");
  EXPECT_EQ(refused({{"output_format", {{"type", "text"}}}}), "'output_format.type' must be json_schema");
  EXPECT_EQ(refused({{"stop_sequences", 1}}), "'stop_sequences' must be a string or a list of strings");
  EXPECT_NE(refused({{"mcp_servers", {{{"url", "x"}}}}}).find("'mcp_servers'"), std::string::npos);
  EXPECT_NE(refused({{"max_output_tokens", 5}}).find("'max_output_tokens'"), std::string::npos);
  EXPECT_EQ(running_
                .refusal(kMessages, message_body({user("x")}, {{"metadata", {{"user_id", "u"}}},
                                                               {"service_tier", "auto"},
                                                               {"max_tokens", 1},
                                                               {"top_k", "x"}}))
                .second,
            "'top_k' must be a whole number from -2147483648 to 2147483647");
}

TEST_F(AnthropicTest, ErrorsHaveItsForm) {
  const auto expect_error = [](const httplib::Result& result, int status, const char* type) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, status);
    const Json error = Json::parse(result->body);
    EXPECT_EQ(error["type"], "error") << error;
    EXPECT_EQ(error["error"]["type"], type);
    EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(error["request_id"], result->get_header_value("X-Request-Id"));
    EXPECT_EQ(error["request_id"], result->get_header_value("Request-Id"));
  };
  ServerSetup setup;
  setup.server.api_keys = {"first", "second"};
  setup.server.max_body = 1000;
  setup.strict_model = true;
  const Running locked(setup);
  const Json body = message_body({user("x")}, {{"max_tokens", 1}, {"model", "stories"}});
  const auto post = [&](const char* key, const Json& sent, const char* path = kMessages) {
    return locked.post(path, sent, {{"X-Api-Key", key}});
  };
  EXPECT_EQ(post("first", body)->status, 200);
  EXPECT_EQ(post("second", body)->status, 200);
  EXPECT_EQ(locked.post(kMessages, body, {{"Authorization", "Bearer second"}})->status, 200);
  EXPECT_EQ(locked.post(kMessages, body, {{"Authorization", "Bearer x"}, {"X-Api-Key", "first"}})->status, 200);
  for (const char* wrong : {"", "third", "firs", "firstfirst", "Bearer first"}) {
    expect_error(post(wrong, body), 401, "authentication_error");
    expect_error(post(wrong, body, kCount), 401, "authentication_error");
  }
  Json other = body;
  other["model"] = "claude";
  expect_error(post("first", other), 404, "not_found_error");
  expect_error(post("first", body, "/v1/messages/batches"), 404, "not_found_error");
  other["system"] = std::string(2000, 'x');
  expect_error(post("first", other), 413, "request_too_large");
  expect_error(running_.client().Get(kMessages), 405, "invalid_request_error");
  expect_error(running_.post(kMessages, 1), 400, "invalid_request_error");
  expect_error(running_.client().Post(kMessages, "{", "application/json"), 400, "invalid_request_error");
  expect_error(running_.client().Post(kMessages, "{}", "text/plain"), 415, "invalid_request_error");
  expect_error(running_.client().Get("/v1/models/x", kVersion), 404, "not_found_error");
  // Others keep theirs.
  EXPECT_FALSE(Json::parse(running_.client().Get("/v1/x")->body).contains("type"));
}

TEST_F(AnthropicTest, AnErrorInAStreamIsAnEvent) {
  const Json body =
      message_body({user("A story.")}, {{"stream", true}, {"max_tokens", 5}, {"session", {{"save", "s"}}}});
  EXPECT_NE(running_.post(kMessages, body)->status, 200) << "sessions are disabled";
  ServerSetup setup;
  setup.server.timeout = std::chrono::milliseconds(50);
  const Running slow(setup);
  const auto events = message_events(
      slow.post(kMessages,
                message_body({user("A story.")}, {{"stream", true}, {"max_tokens", 1000000}, {"min_tokens", 1000000}}))
          ->body);
  EXPECT_EQ(events.front().type, "message_start");
  EXPECT_EQ(events.back().type, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "timeout_error");
  EXPECT_TRUE(events.back().data["request_id"].get<std::string>().starts_with("req-"));
}

TEST_F(AnthropicTest, ModelsOfClientsWithItsHeader) {
  const Json list = Json::parse(running_.client().Get("/v1/models", kVersion)->body);
  EXPECT_EQ(list["data"][0]["type"], "model");
  EXPECT_EQ(list["data"][0]["id"], "stories");
  EXPECT_EQ(list["first_id"], "stories");
  EXPECT_EQ(list["last_id"], "stories");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(Json::parse(running_.client().Get("/v1/models/stories", kVersion)->body), list["data"][0]);
  EXPECT_EQ(Json::parse(running_.client().Get("/v1/models")->body)["data"][0]["object"], "model");
}

TEST_F(AnthropicTest, CacheControlPinsASmallSystemPrompt) {
  const auto method = [&](const Json& more) {
    const Json answer = running_.answer(kMessages, message_body({user("A story.")}, more));
    return answer["usage"]["cache_method"].get<std::string>();
  };
  const Json mark = {{"type", "ephemeral"}};
  const auto system = [&](const std::string& text, bool marked) {
    Json block = {{"type", "text"}, {"text", text}};
    if (marked) block["cache_control"] = mark;
    return Json::array({block});
  };
  EXPECT_EQ(method({{"system", system("Be brief.", false)}}).find("pin"), std::string::npos);
  EXPECT_NE(method({{"system", system("Be brief.", true)}}).find("pin=0-"), std::string::npos);
  EXPECT_NE(method({{"system", system("Be brief.", true)}, {"cache", "h2o:budget=200"}}).find("pin=0-"),
            std::string::npos);
  // Clients mark theirs always: what would not fit is not pinned.
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Be brief. ";
  EXPECT_EQ(method({{"system", system(text, true)}}).find("pin"), std::string::npos);
  EXPECT_EQ(method({{"system", system("Be brief.", true)}, {"cache", "full"}}).find("pin"), std::string::npos);
  EXPECT_EQ(method({{"system", system("Be brief.", true)}, {"cache", "h2o:budget=100,recent=90"}}).find("pin"),
            std::string::npos);
}

TEST(Anthropic, CachedTokensAreCountedApart) {
  ServerSetup setup;
  setup.scheduler.prefix_bytes = std::size_t{64} << 20;
  const Running running(setup);
  std::vector<Json> messages = {user("Tell me a long story of a dog and a cat.")};
  const Json first = running.answer(kMessages, message_body(messages));
  messages.push_back(assistant(first["content"]));
  messages.push_back(user("And then?"));
  const Json usage = running.answer(kMessages, message_body(messages))["usage"];
  EXPECT_GT(usage["cache_read_input_tokens"], 0);
  EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>(),
            running.answer(kCount, message_body(messages))["input_tokens"]);
}

}  // namespace
}  // namespace palimpsest::testing
