// The reader of /v1/completions and /v1/chat/completions.
#include "palimpsest/server/apis/openai_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class OpenAiRequest : public ::testing::Test {
 protected:
  CompletionInput text(const Json& body) const { return read_openai(body, false, model_); }
  CompletionInput chat(const Json& body) const { return read_openai(body, true, model_); }
  const ServedModel model_ = model_of_readers();
  const std::function<void(const Json&)> make_text_ = [this](const Json& body) { make_request(text(body), model_); };
  const std::function<void(const Json&)> make_chat_ = [this](const Json& body) { make_request(chat(body), model_); };
  const Json prompt_ = {{"prompt", "Once"}};
  const Json messages_ = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
};

TEST_F(OpenAiRequest, ReadsCompletions) {
  const CompletionRequest given = text({{"prompt", {"Once", {1, 2}}},
                                        {"n", 2},
                                        {"stream", true},
                                        {"stream_options", {{"include_usage", true}}},
                                        {"stop", {"a", "b"}},
                                        {"logprobs", 3},
                                        {"max_tokens", 7},
                                        {"ignore_eos", true},
                                        {"temperature", 0.5},
                                        {"echo", false},
                                        {"session", nullptr},
                                        {"cache", {{"method", "h2o"}, {"budget", 64}}},
                                        {"speculative", {{"max", 4}}}})
                                      .request;
  ASSERT_EQ(given.prompts.size(), 2u);
  EXPECT_EQ(given.prompts[1].size(), 2u);
  EXPECT_EQ(given.n, 2);
  EXPECT_TRUE(given.stream && given.include_usage && given.has_cache);
  EXPECT_EQ(given.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(given.request.top_logprobs, 3);
  EXPECT_EQ(given.request.max_tokens, 7);
  EXPECT_TRUE(given.request.ignore_end);
  EXPECT_EQ(given.request.sampler.temperature, 0.5F);
  EXPECT_EQ(given.request.method.name, "h2o");
  EXPECT_EQ(given.request.drafts.max, 4);
}

TEST_F(OpenAiRequest, DefaultsAreTheServers) {
  EXPECT_EQ(text(prompt_).request.request.max_tokens, 16);
  EXPECT_EQ(chat(messages_).request.request.max_tokens, model_.default_max_tokens);
  EXPECT_EQ(text(prompt_).request.request.method.name, "streaming");
  EXPECT_FALSE(text(prompt_).request.stream);
}

TEST_F(OpenAiRequest, ReadsChats) {
  Json body = messages_;
  body["messages"].insert(body["messages"].begin(), Json{{"role", "developer"}, {"content", "Be brief."}});
  body["messages"].push_back(
      {{"role", "assistant"},
       {"reasoning_content", "Hm."},
       {"tool_calls", {{{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}});
  body["messages"].push_back(
      {{"role", "tool"}, {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}});
  body["tools"] = {function_tool("f"), function_tool("g")};
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "g"}}}};
  body["reasoning_effort"] = "low";
  body["max_completion_tokens"] = 9;
  const CompletionInput input = chat(body);
  const ChatInput& given = *input.chat;
  ASSERT_EQ(given.messages.size(), 4u);
  EXPECT_EQ(given.messages[0].role, "system");
  EXPECT_EQ(given.messages[2].reasoning, "Hm.");
  EXPECT_EQ(given.messages[3].content, "a\nb");
  EXPECT_EQ(given.messages[3].tool_call_id, "1");
  EXPECT_EQ(given.messages[3].name, "f");
  EXPECT_EQ(given.tools.size(), 2u);
  EXPECT_EQ(given.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(given.function, "g");
  EXPECT_EQ(given.variables.at("reasoning_effort"), "\"low\"");
  EXPECT_EQ(input.request.request.max_tokens, 9);
}

TEST_F(OpenAiRequest, ErrorsNameFieldsOfCompletions) {
  for (const auto& wrong : {kWrongEngineFields, kWrongSampling}) expect_named(make_text_, prompt_, wrong);
  expect_named(make_text_, prompt_,
               {{"prompt", {{"prompt", nullptr}}},
                {"prompt", {{"prompt", Json::array()}}},
                {"prompt", {{"prompt", 1}}},
                {"prompt", {{"prompt", {1, -1}}}},
                {"prompt[1]", {{"prompt", {"Once", {1, -1}}}}},
                {"prompt.content[0].type", {{"prompt", {{"content", {{{"type", "image"}}}}}}}},
                {"n", {{"n", 0}}},
                {"n", {{"n", 128}, {"prompt", {"a", "b"}}}},
                {"stop", {{"stop", 1}}},
                {"stop", {{"stop", ""}}},
                {"logprobs", {{"logprobs", 21}}},
                {"stream_options", {{"stream_options", Json::object()}}},
                {"stream_options.wrong", {{"stream", true}, {"stream_options", {{"wrong", 1}}}}},
                {"max_tokens", {{"max_tokens", 0}}},
                {"max_completion_tokens", {{"max_completion_tokens", -5}}},
                {"max_completion_tokens", {{"max_completion_tokens", 0}}},
                {"n_predict", {{"n_predict", 0}, {"echo", true}, {"logprobs", 1}, {"prompt", {{1}}}}},
                {"best_of", {{"best_of", 2}}},
                {"ignore_eos", {{"ignore_eos", true}, {"grammar", "root ::= \"a\""}}},
                {"grammar", {{"grammar", "root ::= \"a\""}, {"response_format", {{"type", "json_object"}}}}},
                {"json_schema", {{"json_schema", {{"type", "object"}}}, {"grammar", "root ::= \"a\""}}},
                {"json_schema.type", {{"json_schema", {{"type", "wrong"}}}}},
                {"response_format.type", {{"response_format", {{"type", "xml"}}}}},
                {"response_format.json_schema", {{"response_format", {{"type", "json_schema"}}}}},
                {"response_format.json_schema.schema",
                 {{"response_format", {{"type", "json_schema"}, {"json_schema", Json::object()}}}}}});
}

TEST_F(OpenAiRequest, ErrorsNameFieldsOfChats) {
  const auto message = [](const Json& more) {
    Json one = {{"role", "assistant"}, {"content", "x"}};
    one.update(more);
    return Json{{"messages", {{{"role", "user"}, {"content", "x"}}, one}}};
  };
  const auto tool = [](const Json& more) {
    Json one = function_tool("f");
    one["function"].update(more);
    return Json{{"tools", {function_tool("g"), one}}};
  };
  for (const auto& wrong : {kWrongEngineFields, kWrongSampling}) expect_named(make_chat_, messages_, wrong);
  expect_named(make_chat_, messages_,
               {{"messages", {{"messages", nullptr}}},
                {"messages", {{"messages", Json::array()}}},
                {"messages[0]", {{"messages", {1}}}},
                {"messages[1].role", message({{"role", "robot"}})},
                {"messages[1].content", message({{"content", 1}})},
                {"messages[1].content[0].type", message({{"content", {{{"type", "image_url"}}}}})},
                {"messages[1].wrong", message({{"wrong", 1}})},
                {"messages[1].tool_calls", message({{"tool_calls", 1}})},
                {"messages[1].tool_calls[0].function", message({{"tool_calls", {Json::object()}}})},
                {"messages[1].tool_calls[0].function.wrong",
                 message({{"tool_calls", {{{"function", {{"name", "f"}, {"wrong", 1}}}}}}})},
                {"tools", {{"tools", 1}}},
                {"tools[0].type", {{"tools", {{{"type", "web"}}}}}},
                {"tools[0].function", {{"tools", {{{"type", "function"}}}}}},
                {"tools[1].function.name", tool({{"name", "a b"}})},
                {"tools[1].function.wrong", tool({{"wrong", 1}})},
                {"tools[1].function.parameters.type", tool({{"strict", true}, {"parameters", {{"type", "wrong"}}}})},
                {"tool_choice", {{"tool_choice", "required"}}},
                {"tool_choice.function", {{"tools", {function_tool("f")}}, {"tool_choice", Json::object()}}},
                {"chat_template_kwargs.tools", {{"chat_template_kwargs", {{"tools", 1}}}}},
                {"top_logprobs", {{"top_logprobs", 2}}},
                {"max_tokens", {{"max_tokens", 0}}},
                {"n_predict", {{"n_predict", 5}, {"max_tokens", 6}}},
                {"continue_final_message", {{"continue_final_message", true}}},
                {"reasoning_format", {{"reasoning_format", "x"}}}});
  EXPECT_EQ(error_of(make_chat_, messages_, {{"max_completion_tokens", 4}, {"min_tokens", 5}}),
            "'min_tokens' is 5, and 'max_completion_tokens' 4: give at most as many");
}

}  // namespace
}  // namespace palimpsest::testing
