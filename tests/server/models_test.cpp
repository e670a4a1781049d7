// A server with many models: loaded on demand, unloaded by number, by time and on request, never while one answers.
#include <atomic>
#include <set>

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

using namespace std::chrono_literals;

// A server with the models "a" to "d", which are the repository's, and "broken".
class Models {
 public:
  explicit Models(int max = 2, std::optional<std::chrono::milliseconds> keep_alive = {}) {
    ModelHostOptions options;
    options.list = [this] {
      std::vector<KnownModel> all;
      for (const char* name : {"a", "b", "broken", "c", "d"})
        all.push_back({.name = name, .path = served_model()->path()});
      if (also_) all.push_back({.name = "new", .path = served_model()->path()});
      return all;
    };
    options.load = [this](const KnownModel& known) {
      ++loads_;
      if (known.name == "broken" && broken_) fail("/models/broken.gguf: is damaged");
      const int now = ++loaded_;
      for (int most = peak_; now > most && !peak_.compare_exchange_weak(most, now);) {
      }
      return service(known.name);
    };
    options.max_loaded = max;
    options.keep_alive = keep_alive;
    options.responses = responses_;
    host_ = std::make_shared<ModelHost>(std::move(options));
    ServerOptions server;
    server.port = 0;
    server.quiet = true;
    server_ = std::make_unique<Server>(host_, ServerSetup().scheduler, server);
    port_ = server_->bind();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Models() {
    server_->shut_down();
    thread_.join();
  }

  httplib::Client client() const { return local_client(port_); }
  std::pair<int, Json> post(const std::string& path, const Json& body) const {
    const auto result = client().Post(path, body.dump(), "application/json");
    return result ? std::pair(result->status, Json::parse(result->body)) : std::pair(-1, Json());
  }
  Json get(const std::string& path) const {
    const auto result = client().Get(path);
    EXPECT_TRUE(result && result->status == 200) << path << (result ? result->body : "");
    return Json::parse(result->body);
  }
  std::string write(const std::string& model, const std::string& prompt = "Once upon a time") const {
    const auto [status, answer] =
        post(kText, {{"model", model}, {"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}});
    EXPECT_EQ(status, 200) << answer;
    EXPECT_EQ(answer["model"], model);
    return status == 200 ? text_of(answer) : "";
  }
  std::string status(const std::string& model) const { return get("/v1/models/" + model)["status"]["value"]; }
  bool becomes(const std::string& model, const std::string& wanted) const {
    for (int i = 0; i < 500; ++i) {
      if (status(model) == wanted) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  std::atomic<int> loads_ = 0, loaded_ = 0, peak_ = 0;
  std::atomic<bool> broken_ = true, also_ = false;

 private:
  std::shared_ptr<Service> service(const std::string& name) {
    ServedModel model{.vocabulary = served_vocabulary(),
                      .name = name,
                      .chat_template = ChatTemplate::load(served_vocabulary(), "chatml"),
                      .method = parse_method("streaming:budget=128")};
    auto* const made = new Service(std::make_shared<Decoder>(served_model(), 1), std::move(model),
                                   ServerSetup().scheduler, nullptr, responses_);
    return {made, [this](Service* service) {
              delete service;
              --loaded_;
            }};
  }

  std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>(1 << 20);
  std::shared_ptr<ModelHost> host_;
  std::unique_ptr<Server> server_;
  int port_ = 0;
  std::thread thread_;
};

TEST(Models, AreLoadedOnDemand) {
  Models server;
  const Json models = server.get("/v1/models");
  for (const Json& model : models["data"]) EXPECT_EQ(model["status"]["value"], "unloaded") << model;
  EXPECT_EQ(server.loads_, 0);
  const std::string expected = alone("Once upon a time", "streaming:budget=128", 12, 0, 1);
  EXPECT_EQ(server.write("a"), expected);
  EXPECT_EQ(server.write("a"), expected);
  EXPECT_EQ(server.loads_, 1);
  EXPECT_EQ(server.status("a"), "loaded");
  EXPECT_EQ(server.status("b"), "unloaded");
  EXPECT_EQ(server.get("/props?model=b")["model_alias"], "b");
  EXPECT_EQ(server.loads_, 2);
  const auto metrics = server.client().Get("/metrics?model=a");
  EXPECT_NE(metrics->body.find("palimpsest_prompt_tokens_total{model_name=\"a\"}"), std::string::npos);
  // A model that came later.
  EXPECT_EQ(server.post(kText, {{"model", "new"}, {"prompt", "x"}}).first, 404);
  server.also_ = true;
  EXPECT_EQ(server.write("new"), expected);
}

TEST(Models, UnknownAndMissingNamesAreErrorsThatListThem) {
  Models server;
  const auto [status, unknown] = server.post(kText, {{"model", "e"}, {"prompt", "x"}});
  EXPECT_EQ(status, 404);
  EXPECT_EQ(unknown["error"]["message"], "there is no model 'e': there are a, b, broken, c, d");
  EXPECT_EQ(unknown["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown["error"]["param"], "model");
  const auto [missing, error] = server.post(kText, {{"prompt", "x"}});
  EXPECT_EQ(missing, 400);
  EXPECT_EQ(error["error"]["message"], "'model' is missing: there are a, b, broken, c, d");
  EXPECT_EQ(server.post("/v1/messages", {{"model", "e"}, {"max_tokens", 1}, {"messages", Json::array()}}).first, 404);
  EXPECT_EQ(server.post("/api/generate", {{"model", "e:latest"}, {"prompt", "x"}}).first, 404);
  EXPECT_EQ(server.post(kText, {{"model", 3}, {"prompt", "x"}}).first, 400);
  EXPECT_EQ(server.post("/models/load", {{"model", "e"}}).first, 404);
  EXPECT_EQ(server.post("/models/unload", {{"model", "e"}}).first, 404);
  EXPECT_EQ(server.post("/models/load", {{"name", "a"}}).first, 400);
  EXPECT_EQ(server.client().Get("/v1/models/e")->status, 404);
  EXPECT_EQ(server.client().Get("/props")->status, 400);
  EXPECT_EQ(server.client().Get("/props?model=e")->status, 404);
  EXPECT_EQ(server.loads_, 0);
}

TEST(Models, TheLeastRecentlyUsedIsUnloaded) {
  Models server(2);
  server.write("a");
  server.write("b");
  server.write("a");
  server.write("c");
  EXPECT_EQ(server.status("a"), "loaded");
  EXPECT_EQ(server.status("b"), "unloaded");
  EXPECT_EQ(server.status("c"), "loaded");
  EXPECT_EQ(server.loads_, 3);
  EXPECT_EQ(server.peak_, 2);
}

// With room for one model, another one's request waits until the first has answered.
TEST(Models, RequestsInProgressAreNeverCut) {
  Models server(1);
  const Json slow = {{"model", "a"}, {"prompt", "Once"}, {"max_tokens", 400}, {"ignore_eos", true}, {"stream", true}};
  std::atomic<int> pieces = 0;
  std::atomic<bool> done = false;
  std::jthread streaming([&] {
    std::string body;
    const auto result = server.client().Post(kText, httplib::Headers{}, slow.dump(), "application/json",
                                             [&](const char* bytes, std::size_t size) {
                                               body.append(bytes, size);
                                               ++pieces;
                                               return true;
                                             });
    EXPECT_TRUE(result && result->status == 200);
    EXPECT_NE(body.find("\"finish_reason\":\"length\""), std::string::npos) << body.substr(body.size() - 300);
    done = true;
  });
  while (pieces == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server.post("/models/unload", {{"model", "a"}}).first, 200);
  server.write("b");
  EXPECT_TRUE(done) << "b was loaded after a had answered";
  EXPECT_EQ(server.peak_, 1);
  EXPECT_EQ(server.status("a"), "unloaded");
}

TEST(Models, LoadAndUnloadOnRequest) {
  Models server;
  EXPECT_EQ(server.post("/models/load", {{"model", "b"}}).second["success"], true);
  EXPECT_EQ(server.status("b"), "loaded");
  EXPECT_EQ(server.post("/models/unload", {{"model", "b"}}).second["success"], true);
  EXPECT_TRUE(server.becomes("b", "unloaded"));
  EXPECT_EQ(server.post("/models/unload", {{"model", "c"}}).second["success"], true) << "it is not loaded";
  server.write("b");
  EXPECT_EQ(server.status("b"), "loaded");
  EXPECT_EQ(server.loads_, 2);
}

TEST(Models, IdleOnesAreUnloaded) {
  Models server(3, 100ms);
  server.write("a");
  EXPECT_EQ(server
                .post("/api/generate", {{"model", "b:latest"},
                                        {"prompt", "x"},
                                        {"stream", false},
                                        {"keep_alive", -1},
                                        {"options", {{"num_predict", 2}}}})
                .first,
            200);
  EXPECT_TRUE(server.becomes("a", "unloaded"));
  EXPECT_EQ(server.status("b"), "loaded");
  const Json ps = server.get("/api/ps")["models"];
  ASSERT_EQ(ps.size(), 1u);
  EXPECT_EQ(ps[0]["name"], "b:latest");
  EXPECT_TRUE(ps[0]["expires_at"].get<std::string>().starts_with("9999"));
  EXPECT_EQ(server.get("/api/tags")["models"].size(), 5u);
  // Ollama's way to unload.
  EXPECT_EQ(server.post("/api/generate", {{"model", "b"}, {"keep_alive", 0}}).second["done_reason"], "unload");
  EXPECT_TRUE(server.becomes("b", "unloaded"));
  for (const char* bad : {"five", "5x", "", "-", "1e400"})
    EXPECT_EQ(server.post("/api/generate", {{"model", "b"}, {"prompt", "x"}, {"keep_alive", bad}}).first, 400) << bad;
  for (const char* good : {"5m", "1h30m", "250ms", "-1", "10", "2.5s"})
    EXPECT_EQ(server.post("/api/generate", {{"model", "b"}, {"keep_alive", good}}).first, 200) << good;
}

TEST(Models, OneThatCannotBeLoadedSaysWhy) {
  Models server;
  const auto [status, answer] = server.post(kText, {{"model", "broken"}, {"prompt", "x"}});
  EXPECT_EQ(status, 500);
  EXPECT_EQ(answer["error"]["message"], "model 'broken' cannot be loaded: broken.gguf: is damaged");
  const Json shown = server.get("/v1/models/broken")["status"];
  EXPECT_EQ(shown["value"], "failed");
  EXPECT_EQ(shown["error"], "broken.gguf: is damaged");
  server.write("a");
  server.broken_ = false;
  server.write("broken");
  EXPECT_EQ(server.status("broken"), "loaded");
  EXPECT_FALSE(server.get("/v1/models/broken")["status"].contains("error"));
}

TEST(Models, ManyClientsOfFewPlaces) {
  Models server(2);
  const std::string expected = alone("Once upon a time", "streaming:budget=128", 12, 0, 1);
  std::vector<std::jthread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&, i] {
      for (int j = 0; j < 6; ++j) EXPECT_EQ(server.write(std::string(1, "abcd"[(i + j * (i % 3)) % 4])), expected);
    });
  clients.clear();
  EXPECT_LE(server.peak_, 2);
}

TEST(Models, ResponsesContinueOnOtherModels) {
  Models server;
  const Json first =
      server.post(kResponses, {{"model", "a"}, {"input", "Tell me a story."}, {"max_output_tokens", 8}}).second;
  const std::string id = first["id"];
  EXPECT_EQ(server.get("/v1/responses/" + id)["model"], "a");
  const auto [status, next] = server.post(
      kResponses, {{"model", "b"}, {"input", "And then?"}, {"max_output_tokens", 8}, {"previous_response_id", id}});
  EXPECT_EQ(status, 200) << next;
  EXPECT_EQ(next["model"], "b");
}

TEST(Models, AnthropicsListHasAll) {
  Models server;
  const auto got = server.client().Get("/v1/models", {{"anthropic-version", "2023-06-01"}});
  const Json list = Json::parse(got->body);
  EXPECT_EQ(list["data"].size(), 5u);
  EXPECT_EQ(list["first_id"], "a");
  EXPECT_EQ(list["last_id"], "d");
}

TEST(Models, AServerOfOneHasNoneToLoad) {
  Running server;
  EXPECT_EQ(server.refusal("/models/load", {{"model", "stories"}}).first, 400);
  const Json models = Json::parse(server.client().Get("/v1/models")->body)["data"];
  ASSERT_EQ(models.size(), 1u);
  EXPECT_FALSE(models[0].contains("status"));
}

}  // namespace
}  // namespace palimpsest::testing
