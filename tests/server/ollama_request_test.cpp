// The reader of Ollama's /api/chat and /api/generate.
#include "palimpsest/server/apis/ollama_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class OllamaReader : public ::testing::Test {
 protected:
  OllamaRequest chat(const Json& body) const { return read_ollama(body, true, model_); }
  OllamaRequest generate(const Json& body) const { return read_ollama(body, false, model_); }
  const ServedModel model_ = model_of_readers();
  const std::function<void(const Json&)> make_chat_ = [this](const Json& b) { make_request(chat(b).input, model_); };
  const std::function<void(const Json&)> make_generate_ = [this](const Json& b) {
    make_request(generate(b).input, model_);
  };
  const Json hello_ = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
};

TEST_F(OllamaReader, ReadsChats) {
  Json body = hello_;
  body["model"] = "stories:latest";
  body["messages"].push_back({{"role", "assistant"},
                              {"content", ""},
                              {"thinking", "Hm."},
                              {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"city", "Rome"}}}}}}}}});
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "f"}, {"content", "Rain."}});
  body["tools"] = {function_tool("f")};
  body["think"] = false;
  body["format"] = "json";
  body["options"] = {{"num_predict", 9}, {"temperature", 0.5}, {"seed", 3}, {"stop", "X"}, {"num_ctx", 1}, {"new", 1}};
  const CompletionInput input = chat(body).input;
  const ChatInput& given = *input.chat;
  ASSERT_EQ(given.messages.size(), 3u);
  EXPECT_EQ(given.messages[1].reasoning, "Hm.");
  EXPECT_EQ(given.messages[1].tool_calls.at(0).arguments, R"({"city":"Rome"})");
  EXPECT_EQ(given.messages[2].tool_call_id, given.messages[1].tool_calls.at(0).id);
  EXPECT_EQ(given.tools.size(), 1u);
  EXPECT_EQ(given.variables.at("enable_thinking"), "false");
  EXPECT_FALSE(input.output.schema.empty());
  EXPECT_TRUE(input.has_seed && input.request.stream);
  EXPECT_EQ(input.request.stop, std::vector<std::string>{"X"});
  EXPECT_EQ(input.request.request.max_tokens, 9);
  EXPECT_EQ(input.request.request.sampler.temperature, 0.5F);
}

TEST_F(OllamaReader, ReadsPrompts) {
  const CompletionInput turn = generate({{"prompt", "Hello"}, {"system", "Be brief."}, {"stream", false}}).input;
  EXPECT_EQ(turn.chat->messages.size(), 2u);
  EXPECT_FALSE(turn.request.stream);
  const CompletionInput raw = generate({{"prompt", "Hello"}, {"raw", true}, {"options", {{"num_predict", -1}}}}).input;
  EXPECT_FALSE(raw.chat);
  EXPECT_EQ(raw.request.prompts.size(), 1u);
  EXPECT_EQ(raw.request.request.max_tokens, -1);
  EXPECT_EQ(generate(Json::object()).only, "load");
  EXPECT_EQ(chat({{"messages", Json::array()}, {"keep_alive", 0}}).only, "unload");
}

TEST_F(OllamaReader, ErrorsNameFields) {
  WrongFields sampling = kWrongSampling;
  for (auto& [field, more] : sampling) more = {{"options", more}};
  std::vector<std::string> paths;
  for (const auto& [field, more] : kWrongSampling) paths.push_back("options." + std::string(field));
  for (std::size_t i = 0; i < paths.size(); ++i) sampling[i].first = paths[i].c_str();
  const Json prompt = {{"prompt", "Hello"}};
  for (const auto& wrong : {kWrongEngineFields, sampling}) {
    expect_named(make_chat_, hello_, wrong);
    expect_named(make_generate_, prompt, wrong);
  }
  const auto message = [](const Json& more) {
    Json one = {{"role", "assistant"}, {"content", "x"}};
    one.update(more);
    return Json{{"messages", {one}}};
  };
  expect_named(make_chat_, hello_,
               {{"options", {{"options", 1}}},
                {"options.num_predict", {{"options", {{"num_predict", "many"}}}}},
                {"options.min_tokens", {{"options", {{"num_predict", 4}, {"min_tokens", 5}}}}},
                {"options.min_tokens", {{"options", {{"min_tokens", 1}}}, {"format", "json"}}},
                {"options.stop", {{"options", {{"stop", ""}}}}},
                {"stream", {{"stream", 1}}},
                {"think", {{"think", 1}}},
                {"messages", {{"messages", 1}}},
                {"messages[0].role", message({{"role", "robot"}})},
                {"messages[0].content", message({{"content", 1}})},
                {"messages[0].images", message({{"images", {"x"}}})},
                {"messages[0].wrong", message({{"wrong", 1}})},
                {"messages[0].tool_calls[0].function", message({{"tool_calls", {Json::object()}}})},
                {"tools[0].type", {{"tools", {{{"type", "web"}}}}}},
                {"tools[0].function.name", {{"tools", {function_tool("a b")}}}}});
  expect_named(make_generate_, prompt,
               {{"prompt", {{"prompt", 1}}},
                {"system", {{"system", 1}}},
                {"suffix", {{"suffix", "x"}}},
                {"images", {{"images", {"x"}}}},
                {"messages", {{"messages", Json::array()}}}});
  EXPECT_EQ(error_of(make_chat_, hello_, {{"options", {{"num_predict", 4}, {"min_tokens", 5}}}}),
            "'options.min_tokens' is 5, and 'options.num_predict' 4: give at most as many");
}

}  // namespace
}  // namespace palimpsest::testing
