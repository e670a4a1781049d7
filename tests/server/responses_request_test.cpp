// The reader of /v1/responses.
#include "palimpsest/server/apis/responses_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class ResponsesReader : public ::testing::Test {
 protected:
  ResponsesRequest read(const Json& body, const Json& previous = Json::array()) const {
    return read_responses(body, previous, model_);
  }
  const ServedModel model_ = model_of_readers();
  const Json hello_ = {{"input", "Hello"}};
};

TEST_F(ResponsesReader, ReadsItemsAfterThoseBefore) {
  const Json previous = {{{"type", "message"}, {"role", "user"}, {"content", "Weather?"}},
                         {{"type", "reasoning"}, {"summary", Json::array()}, {"unknown", 1}},
                         {{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}, {"arguments", "{}"}}};
  const ResponsesRequest given =
      read({{"instructions", "Be brief."},
            {"input", {{{"type", "function_call_output"}, {"call_id", "1"}, {"output", "Rain."}}}},
            {"store", false},
            {"max_output_tokens", 5},
            {"reasoning", {{"effort", "low"}}},
            {"tools", {{{"type", "function"}, {"name", "f"}}}},
            {"tool_choice", "none"},
            {"text", {{"format", {{"type", "json_object"}}}}}},
           previous);
  const std::vector<ChatMessage>& chat = given.input.chat->messages;
  ASSERT_EQ(chat.size(), 4u);
  EXPECT_EQ(chat[0].content, "Be brief.");
  EXPECT_EQ(chat[2].tool_calls.at(0).name, "f");
  EXPECT_EQ(chat[3].role, "tool");
  EXPECT_EQ(chat[3].name, "f");
  EXPECT_EQ(given.items.size(), 4u);
  EXPECT_EQ(given.items[3]["output"], "Rain.");
  EXPECT_FALSE(given.store);
  EXPECT_EQ(given.input.request.request.max_tokens, 5);
  EXPECT_EQ(given.input.chat->tool_choice, ToolChoice::kNone);
  EXPECT_EQ(given.input.chat->variables.at("reasoning_effort"), "\"low\"");
  EXPECT_FALSE(given.input.output.schema.empty());
}

TEST_F(ResponsesReader, ErrorsNameFields) {
  const std::function<void(const Json&)> make = [this](const Json& body) { make_request(read(body).input, model_); };
  for (const auto& wrong : {kWrongEngineFields, kWrongSampling}) expect_named(make, hello_, wrong);
  const auto item = [](const Json& one) { return Json{{"input", {one}}}; };
  const auto format = [](const Json& one) { return Json{{"text", {{"format", one}}}}; };
  expect_named(make, hello_,
               {{"max_output_tokens", {{"max_output_tokens", -5}}},
                {"max_tokens", {{"max_tokens", 5}}},
                {"input", {{"input", nullptr}}},
                {"input", {{"input", 1}}},
                {"input", {{"input", Json::array()}}},
                {"input[0]", item(1)},
                {"input[0].type", item({{"type", "image"}})},
                {"input[0].role", item({{"role", "robot"}, {"content", "x"}})},
                {"input[0].content", item({{"role", "user"}})},
                {"input[0].content[0].type", item({{"role", "user"}, {"content", {{{"type", "input_image"}}}}})},
                {"input[0].output", item({{"type", "function_call_output"}})},
                {"input[0].wrong", item({{"role", "user"}, {"content", "x"}, {"wrong", 1}})},
                {"background", {{"background", true}}},
                {"store", {{"store", 1}}},
                {"instructions", {{"instructions", 1}}},
                {"tools[0].type", {{"tools", {{{"type", "web_search"}}}}}},
                {"tools[0].name", {{"tools", {{{"type", "function"}, {"name", ""}}}}}},
                {"tool_choice", {{"tool_choice", "required"}}},
                {"tool_choice.type",
                 {{"tools", {{{"type", "function"}, {"name", "f"}}}}, {"tool_choice", {{"type", "web_search"}}}}},
                {"reasoning.wrong", {{"reasoning", {{"wrong", 1}}}}},
                {"text.format.type", format({{"type", "xml"}})},
                {"text.format.schema", format({{"type", "json_schema"}})},
                {"text.format.schema.type", format({{"type", "json_schema"}, {"schema", {{"type", "wrong"}}}})},
                {"text.wrong", {{"text", {{"wrong", 1}}}}}});
  EXPECT_EQ(error_of(make, hello_, {{"max_output_tokens", 4}, {"min_tokens", 5}}),
            "'min_tokens' is 5, and 'max_output_tokens' 4: give at most as many");
}

}  // namespace
}  // namespace palimpsest::testing
