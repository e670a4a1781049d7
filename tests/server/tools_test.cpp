// Tools of chats: calls, whole and streamed, their results in the prompt, and refusals.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

Json weather_tool() {
  return Json::parse(R"({"type":"function","function":{"name":"get_weather","description":"Weather","strict":true,
    "parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]},
    "days":{"type":"integer","minimum":1,"maximum":7}},"required":["city","days"],"additionalProperties":false}}})");
}

Json alarm_tool() {
  return Json::parse(R"({"type":"function","function":{"name":"set_alarm","parameters":{"type":"object",
    "properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}}})");
}

Json asking(const Json& choice) {
  return {{"messages", {{{"role", "user"}, {"content", "Weather in Rome?"}}}},
          {"tools", {weather_tool(), alarm_tool()}},
          {"tool_choice", choice},
          {"max_tokens", 200},
          {"seed", 3}};
}

class ToolsTest : public ::testing::Test {
 protected:
  Running running_;

  std::string prompt_of(const Json& body) const {
    Json fields = {{"messages", body["messages"]}};
    for (const char* name : {"tools", "tool_choice"})
      if (body.contains(name)) fields[name] = body[name];
    const Json tokens = running_.answer("/tokenize", fields)["tokens"];
    return running_.answer("/detokenize", {{"tokens", tokens}})["prompt"];
  }
};

void expect_weather(const Json& arguments) {
  EXPECT_EQ(arguments.size(), 2u);
  EXPECT_TRUE(arguments["city"] == "Rome" || arguments["city"] == "Oslo");
  EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 7);
}

// The default model knows nothing of tools: the grammar makes valid calls.
TEST_F(ToolsTest, RequiredCallsAreValid) {
  Json body = asking("required");
  body["parallel_tool_calls"] = false;
  body["n"] = 8;
  const Json answer = running_.answer(kChat, body);
  // The longest call that the grammar allows has 83 characters and a space or newline at 18 places: it fits into 200
  // tokens even if each is one character.
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    const Json& call = choice["message"]["tool_calls"][0];
    EXPECT_EQ(call["type"], "function");
    EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
    const Json arguments = Json::parse(call["function"]["arguments"].get<std::string>());
    if (call["function"]["name"] == "get_weather") {
      expect_weather(arguments);
    } else {
      EXPECT_EQ(call["function"]["name"], "set_alarm");
      EXPECT_TRUE(arguments.at("on").is_boolean());
    }
  }
}

TEST_F(ToolsTest, ANamedFunctionIsCalled) {
  for (const char* name : {"get_weather", "set_alarm"}) {
    const Json answer = running_.answer(kChat, asking({{"type", "function"}, {"function", {{"name", name}}}}));
    ASSERT_EQ(answer["choices"][0]["message"]["tool_calls"].size(), 1u) << "a named function is called once";
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
    EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], name);
  }
}

TEST_F(ToolsTest, StreamedDeltasJoinToTheWholeAnswer) {
  Json body = asking({{"type", "function"}, {"function", {{"name", "get_weather"}}}});
  body["parallel_tool_calls"] = false;
  const Json whole = running_.answer(kChat, body)["choices"][0]["message"]["tool_calls"][0];
  body["stream"] = true;
  std::string arguments, name, id;
  int steps = 0;
  Json reason;
  for (const Json& event : events(running_.post(kChat, body)->body)) {
    const Json& choice = event["choices"][0];
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
    if (!choice["delta"].contains("tool_calls")) continue;
    const Json& call = choice["delta"]["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    if (call.contains("id")) id += call["id"];
    if (call["function"].contains("name")) name += call["function"]["name"];
    arguments += call["function"]["arguments"];
    ++steps;
  }
  EXPECT_EQ(reason, "tool_calls");
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(arguments, whole["function"]["arguments"].get<std::string>());
  EXPECT_GT(steps, 2);
}

TEST_F(ToolsTest, WithoutACallTheReplyIsContent) {
  const Json with = running_.answer(kChat, asking("auto"))["choices"][0];
  EXPECT_EQ(with["message"].count("tool_calls"), 0u);
  EXPECT_FALSE(with["message"]["content"].get<std::string>().empty());
  EXPECT_NE(with["finish_reason"], "tool_calls");
  // With "none" the tools are not even described.
  Json none = asking("none"), plain = none;
  plain.erase("tools");
  plain.erase("tool_choice");
  EXPECT_EQ(running_.answer(kChat, none)["choices"], running_.answer(kChat, plain)["choices"]);
}

TEST_F(ToolsTest, CallsAndResultsAreInThePrompt) {
  Json body = asking("auto");
  body["messages"].push_back(Json::parse(R"({"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi",
    "type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Oslo\",\"days\":3}"}}]})"));
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"content", "It snows."}});
  const std::string prompt = prompt_of(body);
  for (const char* part : {"get_weather", "set_alarm", "Oslo", "It snows."})
    EXPECT_NE(prompt.find(part), std::string::npos) << part << "\n" << prompt;
  EXPECT_EQ(running_.answer(kChat, body)["choices"].size(), 1u);
}

TEST_F(ToolsTest, VariablesReachTheTemplate) {
  ServerSetup setup;
  setup.chat_template = "{{ messages[0].content }}{% if polite %}, please{% endif %}";
  const Running own(setup);
  const Json messages = {{{"role", "user"}, {"content", "Tell me"}}};
  const auto tokens = [&](const Json& variables) {
    return own.answer("/tokenize", {{"messages", messages}, {"chat_template_kwargs", variables}})["count"].get<int>();
  };
  EXPECT_GT(tokens({{"polite", true}}), tokens({{"polite", false}}));
  EXPECT_EQ(own.refusal(kChat, {{"messages", messages}, {"chat_template_kwargs", {{"messages", 1}}}}).first, 400);
}

TEST_F(ToolsTest, RefusalsNameTheField) {
  const auto refused = [&](const char* patch, const char* part) {
    Json body = asking("auto");
    body.merge_patch(Json::parse(patch));
    const auto [status, message] = running_.refusal(kChat, body);
    EXPECT_EQ(status, 400) << patch;
    EXPECT_NE(message.find(part), std::string::npos) << patch << ": " << message;
  };
  refused(R"({"tools":{}})", "'tools'");
  refused(R"({"tools":[{"type":"web_search"}]})", "tools[0].type");
  refused(R"({"tools":[{"type":"function"}]})", "tools[0].function");
  refused(R"({"tools":[{"type":"function","function":{"name":"a b"}}]})", "tools[0].function.name");
  refused(R"({"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"text"}}}]})",
          "tools[0].function.parameters");
  refused(R"({"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]})",
          "two tools");
  refused(
      R"({"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"uniqueItems":true,"minItems":2}}}}}]})",
      "tools[0].function.parameters.properties.a.uniqueItems");
  refused(R"({"tool_choice":"sometimes"})", "'tool_choice'");
  refused(R"({"tool_choice":{"type":"function","function":{"name":"g"}}})", "no function 'g'");
  refused(R"({"tools":null,"tool_choice":"required"})", "needs 'tools'");
  refused(R"({"response_format":{"type":"json_object"}})", "with 'tools'");
}

}  // namespace
}  // namespace palimpsest::testing
