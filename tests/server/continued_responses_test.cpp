// /v1/responses that continue another by its id.
#include "palimpsest/server/response_store.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

Json ask(const std::string& input, const Json& more = Json::object()) {
  Json body = {{"input", input}, {"seed", 4}, {"max_output_tokens", 30}};
  body.update(more);
  return body;
}

std::string text_of_response(const Json& response) {
  return response["output"][0]["content"][0]["text"];
}

ServerSetup responses_setup() {
  ServerSetup setup;
  setup.scheduler.prefix_bytes = std::size_t{64} << 20;
  return setup;
}

TEST(ContinuedResponses, EqualTheWholeChat) {
  const Running running(responses_setup());
  const Json first = running.answer(kResponses, ask("A story.", {{"instructions", "Be brief."}}));
  const Json second = running.answer(kResponses, ask("And a dog?", {{"previous_response_id", first["id"]}}));
  const Json third = running.answer(kResponses, ask("Why?", {{"previous_response_id", second["id"]}}));
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  EXPECT_GT(third["usage"]["input_tokens_details"]["cached_tokens"], 0);
  // Instructions are those of each response only.
  Json input = {{{"role", "user"}, {"content", "A story."}}};
  for (const Json& item : first["output"]) input.push_back(item);
  input.push_back({{"role", "user"}, {"content", "And a dog?"}});
  Json body = ask("", {{"input", input}, {"cache", "streaming:budget=128"}});
  const Running other;
  EXPECT_EQ(text_of_response(other.answer(kResponses, body)), text_of_response(second));

  // One response may be continued more than once.
  EXPECT_EQ(text_of_response(running.answer(kResponses, ask("Why?", {{"previous_response_id", second["id"]}}))),
            text_of_response(third));
}

TEST(ContinuedResponses, AreStoredFromStreamsToo) {
  const Running running;
  const auto stream = running.post(kResponses, ask("A story.", {{"stream", true}}));
  const std::size_t at = stream->body.find("\"id\":\"resp_") + 6;
  const std::string id = stream->body.substr(at, stream->body.find('"', at) - at);
  EXPECT_EQ(running.answer(kResponses, ask("Why?", {{"previous_response_id", id}}))["object"], "response");
}

TEST(ContinuedResponses, AreUnknownToOthers) {
  ServerSetup setup;
  setup.server.api_keys = {"a", "b"};
  const Running running(setup);
  const auto post = [&](const char* key, const Json& body) {
    return running.post(kResponses, body, {{"Authorization", std::string("Bearer ") + key}});
  };
  const std::string id = Json::parse(post("a", ask("A story."))->body)["id"];
  EXPECT_EQ(post("a", ask("Why?", {{"previous_response_id", id}}))->status, 200);
  const auto refused = post("b", ask("Why?", {{"previous_response_id", id}}));
  EXPECT_EQ(refused->status, 404);
  const Json error = Json::parse(refused->body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "previous_response_id");
  EXPECT_EQ(error["code"], "previous_response_not_found");

  const Json hidden = Json::parse(post("a", ask("A story.", {{"store", false}}))->body);
  EXPECT_EQ(hidden["store"], false);
  EXPECT_EQ(post("a", ask("Why?", {{"previous_response_id", hidden["id"]}}))->status, 404);
  EXPECT_EQ(post("a", ask("Why?", {{"previous_response_id", 3}}))->status, 400);
}

TEST(ContinuedResponses, AreNotStoredWithoutMemory) {
  ServerSetup setup;
  setup.response_bytes = 0;
  const Running running(setup);
  const Json first = running.answer(kResponses, ask("A story."));
  EXPECT_EQ(running.refusal(kResponses, ask("Why?", {{"previous_response_id", first["id"]}})).first, 404);
}

TEST(ResponseStoreTest, DropsTheLeastRecentlyUsed) {
  const Json items = Json::array({std::string(76, 'x')}), response = std::string(18, 'y');  // 80 and 20 bytes as JSON
  const auto get = [&](ResponseStore& store, const char* id, int scope = 0) {
    return store.items(id, scope, "previous_response_id");
  };
  ResponseStore store(1000);
  for (int i = 0; i < 10; ++i) store.put(std::to_string(i), 0, items, response);
  EXPECT_EQ(store.bytes(), 1000u);
  EXPECT_EQ(get(store, "0"), items);
  EXPECT_EQ(store.response("0", 0), response);
  store.put("10", 0, items, response);
  EXPECT_EQ(store.size(), 10u);
  EXPECT_EQ(get(store, "0"), items);
  EXPECT_THROW(get(store, "1"), ApiError);
  EXPECT_THROW(get(store, "0", 1), ApiError);
  EXPECT_THROW(store.response("0", 1), ApiError);
  EXPECT_THROW(store.remove("0", 1), ApiError);
  store.put("large", 0, Json::array({std::string(2000, 'x')}), response);
  EXPECT_EQ(store.size(), 10u);
  EXPECT_THROW(get(store, "large"), ApiError);
  store.remove("0", 0);
  EXPECT_EQ(store.bytes(), 900u);
  EXPECT_THROW(store.response("0", 0), ApiError);

  ResponseStore many(std::size_t{1} << 30);
  for (std::size_t i = 0; i < ResponseStore::kMaxResponses + 5; ++i)
    many.put(std::to_string(i), 0, Json::array(), nullptr);
  EXPECT_EQ(many.size(), ResponseStore::kMaxResponses);
  EXPECT_THROW(get(many, "4"), ApiError);
}

}  // namespace
}  // namespace palimpsest::testing
