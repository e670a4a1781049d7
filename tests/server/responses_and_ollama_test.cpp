// The same chat in other APIs: /v1/responses, and Ollama's.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

struct StreamEvent {
  std::string type;
  Json data;
};

std::vector<StreamEvent> response_events(const std::string& body) {
  std::vector<StreamEvent> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at), line = body.find('\n', at);
    EXPECT_EQ(body.substr(at, 7), "event: ");
    StreamEvent event{body.substr(at + 7, line - at - 7), Json::parse(body.substr(line + 7, end - line - 7))};
    EXPECT_EQ(event.data["type"], event.type);
    EXPECT_EQ(event.data["sequence_number"], out.size());
    out.push_back(std::move(event));
    at = end + 2;
  }
  return out;
}

std::vector<Json> lines(const std::string& body) {
  std::vector<Json> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find('\n', at);
    if (end > at) out.push_back(Json::parse(body.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

Json weather() {
  return Json::parse(R"({"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]}},
    "required":["city"],"additionalProperties":false})");
}

class OtherApis : public ::testing::Test {
 protected:
  Running running_;
  // What the chat API answers.
  std::string chat(const Json& messages, int tokens) const {
    const Json body = {{"messages", messages}, {"max_tokens", tokens}, {"seed", 4}};
    return running_.answer(kChat, body)["choices"][0]["message"]["content"];
  }
};

TEST_F(OtherApis, AResponseIsAChat) {
  const std::string expected =
      chat({{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "A story."}}}, 40);
  Json body = {{"model", "stories"}, {"instructions", "Be brief."}, {"input", "A story."},
               {"seed", 4},          {"max_output_tokens", 40},     {"store", false}};
  const Json whole = running_.answer(kResponses, body);
  EXPECT_EQ(whole["object"], "response");
  EXPECT_TRUE(whole["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  ASSERT_EQ(whole["output"].size(), 1u);
  EXPECT_EQ(whole["output"][0]["type"], "message");
  EXPECT_EQ(whole["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], expected);
  EXPECT_EQ(whole["usage"]["output_tokens"], 40);
  EXPECT_EQ(whole["instructions"], "Be brief.");

  body["stream"] = true;
  const auto events = response_events(running_.post(kResponses, body)->body);
  EXPECT_EQ(events[0].type, "response.created");
  EXPECT_EQ(events[1].type, "response.in_progress");
  EXPECT_EQ(events[2].type, "response.output_item.added");
  EXPECT_EQ(events[3].type, "response.content_part.added");
  EXPECT_EQ(events.back().type, "response.incomplete");
  EXPECT_EQ(events.back().data["response"]["output"][0]["content"], whole["output"][0]["content"]);
  std::string text;
  for (const StreamEvent& event : events)
    if (event.type == "response.output_text.delta") text += event.data["delta"];
  EXPECT_EQ(text, expected);
}

TEST_F(OtherApis, ResponsesCallFunctionsAndReadTheirResults) {
  Json body = {
      {"input", "Weather?"},
      {"seed", 1},
      {"max_output_tokens", 300},
      {"parallel_tool_calls", false},
      {"tools", {{{"type", "function"}, {"name", "get_weather"}, {"parameters", weather()}, {"strict", true}}}},
      {"tool_choice", {{"type", "function"}, {"name", "get_weather"}}}};
  const Json whole = running_.answer(kResponses, body);
  ASSERT_EQ(whole["output"].size(), 1u) << whole;
  const Json call = whole["output"][0];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "get_weather");
  const std::string city = Json::parse(call["arguments"].get<std::string>())["city"];
  EXPECT_TRUE(city == "Rome" || city == "Oslo");

  body["stream"] = true;
  std::string arguments;
  Json done;
  for (const StreamEvent& event : response_events(running_.post(kResponses, body)->body)) {
    if (event.type == "response.function_call_arguments.delta") arguments += event.data["delta"];
    if (event.type == "response.function_call_arguments.done") done = event.data;
  }
  EXPECT_EQ(arguments, call["arguments"].get<std::string>());
  EXPECT_EQ(done["arguments"], call["arguments"]);

  body["stream"] = false;
  body["tool_choice"] = "none";
  body["input"] = {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Weather?"}}}}},
                   call,
                   {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "Rain."}}};
  const Json last = running_.answer(kResponses, body);
  EXPECT_EQ(last["output"][0]["type"], "message");
  EXPECT_FALSE(last["output"][0]["content"][0]["text"].get<std::string>().empty());
}

TEST_F(OtherApis, ResponsesHaveStructuredTextAndRefusals) {
  const Json body = {{"input", "x"},
                     {"max_output_tokens", 1000},
                     {"text", {{"format", {{"type", "json_schema"}, {"name", "w"}, {"schema", weather()}}}}}};
  const Json answer = running_.answer(kResponses, body);
  EXPECT_TRUE(Json::parse(answer["output"][0]["content"][0]["text"].get<std::string>()).contains("city"));
  for (const char* wrong :
       {R"({})", R"({"input":1})", R"({"input":[{"type":"image"}]})", R"({"input":"x","background":true})",
        R"({"input":"x","tools":[{"type":"web_search"}]})", R"({"input":"x","wrong":1})"})
    EXPECT_EQ(running_.refusal(kResponses, Json::parse(wrong)).first, 400) << wrong;
}

// The longest text that the grammar allows has 15 characters and 8 spaces of at most 22: it fits into 200 tokens.
TEST_F(OtherApis, StructuredTextOfChatsIsJsonOnly) {
  const Json schema =
      Json::parse(R"({"type":"object","properties":{"mood":{"enum":["glad","sad"]}},"required":["mood"]})");
  const Json body = {{"messages", {{{"role", "user"}, {"content", "A story."}}}},
                     {"n", 32},
                     {"seed", 1},
                     {"max_tokens", 200},
                     {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}};
  const Json answer = running_.answer(kChat, body);
  for (const Json& choice : answer["choices"]) {
    const std::string text = choice["message"]["content"];
    ASSERT_TRUE(Json::accept(text)) << text;
    EXPECT_TRUE(Json::parse(text)["mood"] == "glad" || Json::parse(text)["mood"] == "sad");
  }
}

TEST_F(OtherApis, OllamasChat) {
  const Json messages = {{{"role", "user"}, {"content", "A story."}}};
  const std::string expected = chat(messages, 30);
  Json body = {{"model", "stories:latest"},
               {"messages", messages},
               {"stream", false},
               {"options", {{"seed", 4}, {"num_predict", 30}, {"num_ctx", 4096}}}};
  const Json whole = running_.answer("/api/chat", body);
  EXPECT_EQ(whole["message"]["content"], expected);
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(whole["done_reason"], "length");
  EXPECT_EQ(whole["eval_count"], 30);
  EXPECT_GT(whole["total_duration"], 0);

  body.erase("stream");  // Ollama streams by default
  const auto answer = running_.post("/api/chat", body);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "application/x-ndjson");
  const auto objects = lines(answer->body);
  std::string text;
  for (const Json& object : objects) text += object["message"]["content"];
  EXPECT_EQ(text, expected);
  EXPECT_EQ(objects.back()["done"], true);
  EXPECT_EQ(objects.front()["done"], false);
}

TEST_F(OtherApis, OllamasGenerateToolsAndTags) {
  const Json asked = {
      {"model", "stories"}, {"prompt", "A story."}, {"stream", false}, {"options", {{"seed", 4}, {"num_predict", 20}}}};
  EXPECT_EQ(running_.answer("/api/generate", asked)["response"],
            chat({{{"role", "user"}, {"content", "A story."}}}, 20));
  Json raw = asked;
  raw["raw"] = true;
  EXPECT_EQ(running_.answer("/api/generate", raw)["response"],
            text_of(running_.answer(kText, {{"prompt", "A story."}, {"seed", 4}, {"max_tokens", 20}})));

  Json shaped = asked;
  shaped["format"] = weather();
  shaped["options"]["num_predict"] = 100;
  EXPECT_TRUE(Json::parse(running_.answer("/api/generate", shaped)["response"].get<std::string>()).contains("city"));

  Json called = {{"role", "assistant"}, {"content", ""}};
  called["tool_calls"] = {{{"function", {{"name", "get_weather"}, {"arguments", {{"city", "Rome"}}}}}}};
  const Json after = {
      {"messages",
       {{{"role", "user"}, {"content", "Weather?"}},
        called,
        {{"role", "tool"}, {"tool_name", "get_weather"}, {"content", "Rain."}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "get_weather"}, {"parameters", weather()}}}}}},
      {"stream", false},
      {"options", {{"num_predict", 5}}}};
  EXPECT_EQ(running_.answer("/api/chat", after)["done"], true);

  const Json tags = Json::parse(running_.client().Get("/api/tags")->body);
  EXPECT_EQ(tags["models"][0]["name"], "stories:latest");
  EXPECT_GT(tags["models"][0]["size"], 1000);
  ServerSetup setup;
  setup.strict_model = true;
  EXPECT_EQ(Running(setup).refusal("/api/chat", {{"model", "other"}, {"messages", Json::array()}}).first, 404);
  EXPECT_EQ(running_.refusal("/api/generate", {{"prompt", "x"}, {"suffix", "y"}}).first, 400);
}

}  // namespace
}  // namespace palimpsest::testing
