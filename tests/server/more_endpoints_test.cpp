// Endpoints and fields beside the main ones: continued messages, limits of the context, progress, infill, rerank,
// stored responses, Ollama's endpoints about the model.
#include <algorithm>

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

Json message(const char* role, const char* text) {
  return {{"role", role}, {"content", text}};
}

std::string content_of(const Json& answer) {
  return answer["choices"][0]["message"]["content"];
}

class MoreEndpoints : public ::testing::Test {
 protected:
  Running running_;
};

TEST_F(MoreEndpoints, TheLastMessageOfTheAssistantIsContinued) {
  const Json asked = message("user", "Tell a story."), begun = message("assistant", "Once upon a time");
  Json body = {{"messages", {asked, begun}}, {"max_tokens", 16}, {"temperature", 0}};
  const auto prompt = [&](const Json& of) {
    return running_.answer("/apply-template", of)["prompt"].get<std::string>();
  };
  const std::string continued = prompt({{"messages", {asked, begun}}});
  EXPECT_TRUE(continued.ends_with("assistant\nOnce upon a time")) << continued;
  EXPECT_EQ(prompt({{"messages", {asked, begun}}, {"continue_final_message", true}, {"add_generation_prompt", false}}),
            continued);
  EXPECT_EQ(content_of(running_.answer(kChat, body)),
            text_of(running_.answer(kText, {{"prompt", continued}, {"max_tokens", 16}, {"temperature", 0}})));
  const std::string apart = prompt({{"messages", {asked, begun}}, {"add_generation_prompt", true}});
  EXPECT_TRUE(apart.ends_with("Once upon a time<|im_end|>\n<|im_start|>assistant\n")) << apart;
  const std::string ended = prompt({{"messages", {asked}}, {"add_generation_prompt", false}});
  EXPECT_TRUE(ended.ends_with("Tell a story.<|im_end|>\n")) << ended;
  EXPECT_EQ(
      running_.answer("/api/chat", {{"messages", {asked, begun}},
                                    {"stream", false},
                                    {"options", {{"num_predict", 16}, {"temperature", 0}}}})["message"]["content"],
      content_of(running_.answer(kChat, body)));

  body["continue_final_message"] = body["add_generation_prompt"] = true;
  EXPECT_EQ(running_.refusal(kChat, body).first, 400);
  EXPECT_EQ(running_.refusal(kChat, {{"messages", {asked}}, {"continue_final_message", true}}).first, 400);
  EXPECT_EQ(running_.refusal(kChat, {{"messages", {asked, begun, begun}}}).first, 400);
}

TEST(ContextLimit, OfTextsThatKeepEveryToken) {
  ServerSetup setup;
  setup.context = 64;
  Running running(setup);
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += " word";
  Json body = {{"prompt", prompt}, {"max_tokens", 4}, {"cache", "full"}};
  const auto refused = running.post(kText, body);
  EXPECT_EQ(refused->status, 400);
  const Json error = Json::parse(refused->body)["error"];
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_ctx"], 64);
  EXPECT_GT(error["n_prompt_tokens"], 64);
  Json chat = {{"messages", {message("user", prompt.c_str())}}, {"cache", "full"}};
  EXPECT_EQ(running.post(kChat, chat)->status, 400);
  EXPECT_GT(running.answer("/v1/chat/completions/input_tokens", chat)["input_tokens"], 64);
  body["cache"] = "streaming:budget=32";
  EXPECT_EQ(running.post(kText, body)->status, 200);
  const Json answer =
      running.answer(kText, {{"prompt", "A"}, {"max_tokens", 100}, {"cache", "full"}, {"ignore_eos", true}});
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["total_tokens"], 64);
}

TEST_F(MoreEndpoints, TheStreamReportsProgressAndTimings) {
  std::string prompt;
  for (int i = 0; i < 200; ++i) prompt += " word";
  Json body = {{"prompt", prompt},          {"max_tokens", 6},       {"stream", true},    {"return_progress", true},
               {"timings_per_token", true}, {"cache_prompt", false}, {"ignore_eos", true}};
  const auto check = [](const std::vector<Json>& all) {
    long long last = -1, reports = 0, timings = 0, total = 0;
    for (const Json& event : all) {
      if (event.contains("timings")) ++timings;
      if (!event.contains("prompt_progress")) continue;
      const Json& progress = event["prompt_progress"];
      EXPECT_EQ(timings, 0);
      EXPECT_GT(progress["processed"], last);
      EXPECT_EQ(progress["cache"], 0);
      last = progress["processed"], total = progress["total"];
      ++reports;
    }
    EXPECT_EQ(last, total);
    EXPECT_GE(reports, 4);  // chunks of 64 tokens
    EXPECT_GT(timings, 1);
  };
  check(events(running_.post(kText, body)->body));
  body["messages"] = {message("user", prompt.c_str())};
  body.erase("prompt");
  check(events(running_.post(kChat, body)->body));
}

TEST_F(MoreEndpoints, CountsTokens) {
  const Json messages = {message("user", "Tell a story.")};
  const Json whole = running_.answer(kChat, {{"messages", messages}, {"max_tokens", 1}});
  EXPECT_EQ(running_.answer("/v1/chat/completions/input_tokens", {{"messages", messages}})["input_tokens"],
            whole["usage"]["prompt_tokens"]);
  EXPECT_EQ(running_.answer("/v1/responses/input_tokens", {{"input", "Tell a story."}})["input_tokens"],
            whole["usage"]["prompt_tokens"]);
}

TEST_F(MoreEndpoints, ResponsesAreReadAndRemoved) {
  const Json made = running_.answer(kResponses, {{"input", "A story."}, {"max_output_tokens", 5}});
  const std::string path = "/v1/responses/" + made["id"].get<std::string>();
  auto client = running_.client();
  EXPECT_EQ(Json::parse(client.Get(path)->body), made);
  EXPECT_EQ(Json::parse(client.Delete(path)->body)["deleted"], true);
  EXPECT_EQ(client.Get(path)->status, 404);
  EXPECT_EQ(client.Delete(path)->status, 404);
  EXPECT_EQ(running_.refusal(kResponses, {{"input", "x"}, {"previous_response_id", made["id"]}}).first, 404);
}

TEST_F(MoreEndpoints, InfillNeedsItsTokens) {
  const auto result = running_.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(result->status, 501);
  EXPECT_NE(result->body.find("prefix, suffix, middle"), std::string::npos) << result->body;
  EXPECT_EQ(running_.refusal("/api/generate", {{"prompt", "x"}, {"suffix", "y"}}).first, 400);
}

TEST_F(MoreEndpoints, RerankOrdersByTheCosineOfEmbeddings) {
  const std::vector<std::string> texts = {"The ship sailed.", "A girl found a cat.", "Rain fell.", "A girl saw a cat."};
  Json body = {{"query", "A girl found a cat."}, {"documents", texts}};
  const Json all = running_.answer("/v1/rerank", body);
  ASSERT_EQ(all["results"].size(), texts.size());
  EXPECT_EQ(all["results"][0]["index"], 1);
  EXPECT_NEAR(all["results"][0]["relevance_score"].get<double>(), 1, 1e-5);
  for (std::size_t i = 1; i < texts.size(); ++i)
    EXPECT_LE(all["results"][i]["relevance_score"], all["results"][i - 1]["relevance_score"]);
  EXPECT_GT(all["usage"]["prompt_tokens"], 10);
  body["top_n"] = 2, body["return_documents"] = true;
  const Json two = running_.answer("/rerank", body);
  ASSERT_EQ(two["results"].size(), 2u);
  EXPECT_EQ(two["results"][0]["document"]["text"], texts[1]);
  const Json bare = running_.answer("/rerank", {{"query", "x"}, {"texts", texts}});
  ASSERT_TRUE(bare.is_array());
  EXPECT_TRUE(bare[0].contains("score"));
  for (const Json& bad : {Json{{"query", "x"}}, Json{{"documents", texts}}, Json{{"query", 1}, {"documents", texts}},
                          Json{{"query", "x"}, {"documents", Json::array()}}, Json{{"query", "x"}, {"documents", {1}}}})
    EXPECT_EQ(running_.refusal("/v1/rerank", bad).first, 400) << bad;
}

TEST_F(MoreEndpoints, OllamasModelIsAlwaysLoaded) {
  auto client = running_.client();
  const Json tags = Json::parse(client.Get("/api/tags")->body)["models"][0];
  EXPECT_EQ(tags["digest"].get<std::string>().size(), 64u);
  const Json ps = Json::parse(client.Get("/api/ps")->body)["models"][0];
  EXPECT_EQ(ps["digest"], tags["digest"]);
  const Json shown = running_.answer("/api/show", {{"model", "stories:latest"}});
  EXPECT_EQ(shown["model_info"]["general.architecture"], shown["details"]["family"]);
  EXPECT_NE(shown["parameters"].get<std::string>().find("top_k"), std::string::npos);
  const Json capabilities = shown["capabilities"];
  EXPECT_NE(std::ranges::find(capabilities, "completion"), capabilities.end());
  EXPECT_EQ(running_.refusal("/api/show", Json::object()).first, 400);

  EXPECT_EQ(running_.answer("/api/generate", {{"model", "stories"}})["done_reason"], "load");
  EXPECT_EQ(running_.answer("/api/generate", {{"model", "stories"}, {"keep_alive", 0}})["done_reason"], "unload");
  EXPECT_EQ(running_.answer("/api/chat", {{"messages", Json::array()}})["done_reason"], "load");
  const Json odd = {{"prompt", "x"},
                    {"stream", false},
                    {"options", {{"num_predict", 2}, {"made_up", 1}, {"penalize_newline", true}, {"num_ctx", 99}}}};
  EXPECT_EQ(running_.answer("/api/generate", odd)["eval_count"], 2);
  const Json one = running_.answer("/api/embeddings", {{"prompt", "A cat."}});
  const Json many = running_.answer("/api/embed", {{"input", {"A cat."}}});
  EXPECT_EQ(one["embedding"], many["embeddings"][0]);
  const auto error = client.Post("/api/chat", "{", "application/json");
  EXPECT_TRUE(Json::parse(error->body)["error"].is_string());
}

TEST_F(MoreEndpoints, PiecesThatAreNoTextAreBytes) {
  const Json tokens = running_.answer("/tokenize", {{"content", "\xF0\x9F\x92\xA9"}, {"with_pieces", true}})["tokens"];
  std::string bytes;
  for (const Json& token : tokens)
    if (token["piece"].is_string())
      bytes += token["piece"].get<std::string>();
    else
      for (const Json& byte : token["piece"]) bytes += static_cast<char>(byte.get<int>());
  EXPECT_TRUE(bytes.ends_with("\xF0\x9F\x92\xA9")) << tokens;
}

TEST(Page, IsLeftOut) {
  ServerSetup setup;
  setup.server.page = false;
  Running running(setup);
  EXPECT_EQ(running.client().Get("/")->status, 404);
}

TEST_F(MoreEndpoints, TemplatesOfTheLibraryByName) {
  const Json chat = {{"messages", {message("system", "S"), message("user", "U")}}};
  ServerSetup setup;
  setup.chat_template = "command-r";
  EXPECT_EQ(Running(setup).answer("/apply-template", chat)["prompt"],
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U"
            "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>");
}

}  // namespace
}  // namespace palimpsest::testing
