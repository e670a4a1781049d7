// The reader of /v1/messages. anthropic_test.cpp has the texts of its errors.
#include "palimpsest/server/apis/anthropic_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class AnthropicRequest : public ::testing::Test {
 protected:
  CompletionInput read(const Json& body) const { return read_anthropic(body, false, model_); }
  const ServedModel model_ = model_of_readers();
  const Json hello_ = {{"max_tokens", 20}, {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
};

TEST_F(AnthropicRequest, ReadsBlocks) {
  Json body = hello_;
  body["system"] = {{{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}}};
  body["messages"].push_back({{"role", "assistant"},
                              {"content",
                               {{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "s"}},
                                {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", {{"city", "Rome"}}}}}}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content", {{{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", "no"}, {"is_error", true}}}}});
  body["tools"] = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}};
  body["tool_choice"] = {{"type", "tool"}, {"name", "f"}, {"disable_parallel_tool_use", true}};
  body["thinking"] = {{"type", "disabled"}};
  body["stop_sequences"] = {"X"};
  const CompletionInput input = read(body);
  const ChatInput& given = *input.chat;
  ASSERT_EQ(given.messages.size(), 4u);
  EXPECT_EQ(given.messages[0].content, "Be brief.");
  EXPECT_EQ(given.messages[2].reasoning, "Hm.");
  EXPECT_EQ(given.messages[2].tool_calls.at(0).arguments, R"({"city":"Rome"})");
  EXPECT_EQ(given.messages[3].content, "Error: no");
  EXPECT_EQ(given.messages[3].name, "f");
  EXPECT_EQ(given.function, "f");
  EXPECT_FALSE(given.parallel_tool_calls);
  EXPECT_EQ(given.variables.at("enable_thinking"), "false");
  EXPECT_TRUE(input.marks_system);
  EXPECT_EQ(input.request.stop, std::vector<std::string>{"X"});
  EXPECT_EQ(input.request.request.max_tokens, 20);
}

TEST_F(AnthropicRequest, ErrorsNameFields) {
  const std::function<void(const Json&)> make = [this](const Json& body) { make_request(read(body), model_); };
  for (const auto& wrong : {kWrongEngineFields, kWrongSampling}) expect_named(make, hello_, wrong);
  const auto block = [](const Json& one) { return Json{{"messages", {{{"role", "user"}, {"content", {one}}}}}}; };
  expect_named(make, hello_,
               {{"max_tokens", {{"max_tokens", nullptr}}},
                {"system", {{"system", 1}}},
                {"system[0].type", {{"system", {{{"type", "image"}}}}}},
                {"messages[1].content",
                 {{"messages", {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", 1}}}}}},
                {"messages[0].content[0].type", block({{"type", "document"}})},
                {"messages[0].content[0].text", block({{"type", "text"}})},
                {"messages[0].content[0].wrong", block({{"type", "text"}, {"text", "x"}, {"wrong", 1}})},
                {"messages[0].content[0].content[0].type",
                 block({{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", {{{"type", "image"}}}}})},
                {"stop_sequences", {{"stop_sequences", ""}}},
                {"tools[0].name", {{"tools", {{{"name", "a b"}}}}}},
                {"tools[0].input_schema.type",
                 {{"tools", {{{"name", "f"}, {"strict", true}, {"input_schema", {{"type", "wrong"}}}}}}}},
                {"tool_choice", {{"tool_choice", {{"type", "any"}}}}},
                {"tool_choice.type", {{"tool_choice", {{"type", "some"}}}}},
                {"thinking.type", {{"thinking", {{"type", "x"}}}}},
                {"mcp_servers", {{"mcp_servers", {1}}}},
                {"output_format.schema", {{"output_format", {{"type", "json_schema"}}}}},
                {"output_config.format.schema", {{"output_config", {{"format", {{"type", "json_schema"}}}}}}},
                {"output_config.wrong", {{"output_config", {{"wrong", 1}}}}}});
  EXPECT_EQ(error_of(make, hello_, {{"max_tokens", 4}, {"min_tokens", 5}}),
            "'min_tokens' is 5, and 'max_tokens' 4: give at most as many");
}

TEST_F(AnthropicRequest, CountsNeedNoLimit) {
  EXPECT_NO_THROW(read_anthropic({{"messages", hello_["messages"]}}, true, model_));
}

}  // namespace
}  // namespace palimpsest::testing
