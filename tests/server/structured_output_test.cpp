// Structured output: what a schema says holds, or the request is refused by name. Answers are sampled at a high
// temperature.
#include <fmt/format.h>

#include "palimpsest/text/schema/compile.h"
#include "tests/server/server_fixture.h"
#include "tests/support/draws.h"

namespace palimpsest::testing {
namespace {

constexpr int kSeeds = 6;

class StructuredOutputTest : public ::testing::Test {
 protected:
  Running running_;

  static Json asked(const Json& format, int seed) {
    return {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
            {"response_format", format},
            {"temperature", 1.5},
            {"top_k", 0},
            {"seed", seed},
            {"max_tokens", 400}};
  }
  static Json format_of(const Json& schema) {
    return {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}};
  }
  static Json tool_of(const Json& parameters) {
    return {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}};
  }
  static Json asking_tools(const Json& tools, const char* choice, int seed = 1) {
    return {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
            {"tools", tools},
            {"tool_choice", choice},
            {"temperature", 1.5},
            {"seed", seed},
            {"max_tokens", 300}};
  }

  // Answers over chat and completions are JSON, and valid.
  void expect_valid(const std::string& text) {
    const Json schema = Json::parse(text);
    SCOPED_TRACE(text);
    int ended = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const Json choice = running_.answer(kChat, asked(format_of(schema), seed))["choices"][0];
      if (choice["finish_reason"] == "length") continue;
      ++ended;
      const std::string content = choice["message"]["content"].get<std::string>();
      ASSERT_TRUE(Json::accept(content)) << content;
      EXPECT_TRUE(is_valid(Json::parse(content), schema)) << content;
    }
    EXPECT_GT(ended, 0);
    const Json answer = running_.answer(kText, {{"prompt", "Once"},
                                                {"response_format", format_of(schema)},
                                                {"temperature", 1.5},
                                                {"seed", 7},
                                                {"max_tokens", 400}})["choices"][0];
    if (answer["finish_reason"] == "stop") {
      ASSERT_TRUE(Json::accept(answer["text"].get<std::string>())) << answer["text"];
      EXPECT_TRUE(is_valid(Json::parse(answer["text"].get<std::string>()), schema)) << answer["text"];
    }
  }
};

TEST_F(StructuredOutputTest, PatternsAreMatched) {
  for (const char* pattern :
       {R"(^\\d{3}$)", R"(^\\w+\\s\\S{2}$)", R"(^\\D{2}$)", R"(\\bab\\b)", R"(^\\p{Lu}{3}$)", R"(^[\\d\\s]{3}$)",
        R"(^a\\/b$)", R"(^(?=.*\\d)[a-z0-9]{4}$)", R"((?i)^ab$)", R"(^a$|^b$)", R"(a|b)"})
    expect_valid(fmt::format(
        R"({{"type":"object","properties":{{"a":{{"type":"string","pattern":"{}","maxLength":20}}}},"required":["a"]}})",
        pattern));
  const auto [status, message] = running_.refusal(
      kChat, asked(format_of(Json::parse(R"({"type":"object","properties":{"a":{"pattern":"^(a)\\1$"}}})")), 1));
  EXPECT_EQ(status, 400);
  EXPECT_NE(message.find("response_format.json_schema.schema.properties.a.pattern"), std::string::npos) << message;
}

TEST_F(StructuredOutputTest, PatternsAreOfDecodedCharacters) {
  for (const char* pattern :
       {R"(^\"a\"$)", R"(^C:\\\\x$)", R"(^a\\tb$)", R"(^.{20,60}$)", R"(^é+$)", R"(^\\u{1F600}{2}$)"})
    expect_valid(fmt::format(R"({{"type":"string","pattern":"{}","maxLength":60}})", pattern));
}

TEST_F(StructuredOutputTest, KeywordsBesideOthersHold) {
  for (
      const char* schema : {
          R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a"],
              "anyOf":[{"required":["b"]},{"properties":{"b":false}}]})",
          R"({"properties":{"a":{"type":"integer"}},"required":["a"],"allOf":[{"properties":{"c":{"type":"null"}},"required":["c"]}]})",
          R"({"$ref":"#/$defs/t","maxLength":3,"$defs":{"t":{"type":"string","minLength":2}}})",
          R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"boolean"},"minItems":2,"maxItems":4})",
          R"({"enum":["a","abc",1],"minLength":2})",
          R"({"type":"string","enum":[1,"x",null]})",
          R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})",
          R"({"minimum":2,"maximum":9,"type":["integer","null"]})",
          R"({"oneOf":[{"type":"integer","maximum":6},{"type":"integer","minimum":5}],"minimum":0,"maximum":8})",
          R"({"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"boolean"}},
              "anyOf":[{"required":["id"]},{"required":["name"]}]})",
          R"({"type":"object","properties":{"a":{"const":1},"b":{"type":"null"}},"if":{"required":["a"]},"then":{"required":["b"]}})",
          R"({"type":"object","properties":{"k":{"enum":["x","y"]}},"required":["k"],"not":{"properties":{"k":{"const":"x"}}}})",
      })
    expect_valid(schema);
}

TEST_F(StructuredOutputTest, TheEmptySchemaIsAnyValue) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Json choice = running_.answer(kChat, asked(format_of(Json::object()), seed))["choices"][0];
    const std::string content = choice["message"]["content"].get<std::string>();
    EXPECT_TRUE(choice["finish_reason"] == "length" || Json::accept(content)) << content;
    ASSERT_FALSE(content.empty());
    EXPECT_NE(std::string("{[\"-0123456789tfn").find(content[0]), std::string::npos) << content;
  }
}

TEST_F(StructuredOutputTest, ToolsWithoutStrictAreNeverRefused) {
  std::string optional;
  for (int i = 0; i < 450; ++i) optional += fmt::format(R"({}"p{}":{{"type":"string"}})", i > 0 ? "," : "", i);
  const std::string long_pattern(1500, 'a');
  const std::vector<std::string> properties = {R"({"type":"string","maxLength":5000})",
                                               R"({"type":"array","maxItems":5000})",
                                               R"({"type":"string","maxLength":100.0})",
                                               R"({"type":"integer","maximum":18446744073709551615})",
                                               R"({"type":"string","pattern":")" + long_pattern + "\"}",
                                               R"({"$ref":"https://example.com/schema.json"})",
                                               R"({"$ref":"#word","$defs":{"w":{"$anchor":"word","type":"string"}}})",
                                               R"({"$ref":"#/$defs/A~1b%20c"})",
                                               "false",
                                               R"({"type":"array","items":false})",
                                               R"({"properties":null})",
                                               R"({"required":true})",
                                               R"({"type":"any"})",
                                               R"({"type":"string","pattern":"("})",
                                               R"({"pattern":"^(a)\\1$"})",
                                               "null",
                                               "[]",
                                               R"({"not":{"propertyNames":{}}})",
                                               R"({"type":"object","properties":{)" + optional + "}}"};
  for (const std::string& property : some_if_sanitized(properties, 5)) {
    SCOPED_TRACE(property.substr(0, 100));
    const Json parameters =
        Json::parse(R"({"type":"object","properties":{"a":)" + property +
                    R"(,"b":{"type":"boolean"}},"required":["b"],"$defs":{"A/b c":{"type":"null"}}})");
    const Json other = {{"type", "function"}, {"function", {{"name", "g"}}}};
    EXPECT_EQ(running_.post(kChat, asking_tools(Json::array({tool_of(parameters), other}), "auto"))->status, 200);
    const Json answer = running_.answer(kChat, asking_tools(Json::array({tool_of(parameters)}), "required"));
    if (answer["choices"][0]["finish_reason"] != "tool_calls") continue;
    const Json call = answer["choices"][0]["message"]["tool_calls"][0]["function"];
    ASSERT_TRUE(Json::accept(call["arguments"].get<std::string>())) << call;
    EXPECT_TRUE(Json::parse(call["arguments"].get<std::string>()).value("b", Json()).is_boolean()) << call;
  }
}

TEST_F(StructuredOutputTest, ToolsEnforceWhatTheyCan) {
  const Json parameters = Json::parse(
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^.{10,40}$"},"b":{"type":"integer","minimum":3,"maximum":5}},
      "required":["a","b"]})");
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Json choice =
        running_.answer(kChat, asking_tools(Json::array({tool_of(parameters)}), "required", seed))["choices"][0];
    if (choice["finish_reason"] == "length") continue;
    const std::string arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>();
    ASSERT_TRUE(Json::accept(arguments)) << arguments;
    EXPECT_TRUE(is_valid(Json::parse(arguments), parameters)) << arguments;
  }
}

TEST_F(StructuredOutputTest, ALenientFormatIsNeverRefused) {
  for (const char* schema : {R"({"type":"any"})", R"({"type":"object","properties":{"a":{"pattern":"^(a)\\1$"}}})",
                             "false", R"({"properties":null})", R"({"type":"array","items":{},"uniqueItems":true})"}) {
    SCOPED_TRACE(schema);
    Json format = format_of(Json::parse(schema));
    format["json_schema"]["strict"] = false;
    EXPECT_EQ(running_.post(kChat, asked(format, 1))->status, 200);
    const Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                       {"stream", false},
                       {"format", Json::parse(schema)},
                       {"options", {{"num_predict", 20}}}};
    EXPECT_EQ(running_.post("/api/chat", body)->status, 200);
  }
}

// A call that max_tokens cut off comes back with the history.
TEST_F(StructuredOutputTest, OurOwnCutOffCallIsTakenBack) {
  const Json parameters =
      Json::parse(R"({"type":"object","properties":{"a":{"type":"string","minLength":50}},"required":["a"]})");
  Json body = asking_tools(Json::array({tool_of(parameters)}), "required");
  body["max_tokens"] = 30;
  const Json message = running_.answer(kChat, body)["choices"][0]["message"];
  ASSERT_FALSE(Json::accept(message["tool_calls"][0]["function"]["arguments"].get<std::string>()));
  body["tool_choice"] = "auto";
  body["messages"].push_back(message);
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "incomplete"}});
  EXPECT_EQ(running_.post(kChat, body)->status, 200);

  for (const char* arguments : {R"("{")", R"("")", "null", R"("[1]")", R"({"a":"b"})", R"("  ")"}) {
    const Json call = {
        {"id", nullptr}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", Json::parse(arguments)}}}};
    const Json odd = {{"messages",
                       {{{"role", "user"}, {"content", "Hi"}},
                        {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}},
                        {{"role", "tool"}, {"tool_call_id", nullptr}, {"content", "ok"}}}},
                      {"max_tokens", 3}};
    EXPECT_EQ(running_.post(kChat, odd)->status, 200) << arguments;
    const Json items = {
        {"input",
         {{{"role", "user"}, {"content", "Hi"}},
          {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", Json::parse(arguments)}},
          {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "ok"}}}},
        {"max_output_tokens", 3}};
    EXPECT_EQ(running_.post(kResponses, items)->status, 200) << arguments;
  }
}

}  // namespace
}  // namespace palimpsest::testing
