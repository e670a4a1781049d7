// Bad input, API keys, a full queue, disconnects and slow readers, shutdown.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

using ServerTest = ::testing::Test;

using namespace std::chrono_literals;

const Json kEndless = {
    {"prompt", "Once upon a time"}, {"max_tokens", 1'000'000}, {"ignore_eos", true}, {"stream", true}};

TEST_F(ServerTest, BadInputIsRefusedWithWhatIsWrong) {
  Running server;
  const auto refused = [&](const char* path, const Json& body, int status, const std::string& part) {
    const auto [code, message] = server.refusal(path, body);
    EXPECT_EQ(code, status) << body;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused(kText, Json::object(), 400, "'prompt' is missing");
  refused(kText, Json::array(), 400, "must be a JSON object");
  refused(kText, {{"prompt", 3}}, 400, "'prompt' must be");
  refused(kText, {{"prompt", {1, 1 << 20}}}, 400, "not in the model's vocabulary");
  refused(kText, {{"prompt", {1, -1}}}, 400, "no token");
  refused(kText, {{"prompt", "x"}, {"temprature", 1}}, 400, "'temprature' is not supported");
  refused(kText, {{"prompt", "x"}, {"temperature", "hot"}}, 400, "'temperature' must be a number");
  refused(kText, {{"prompt", "x"}, {"temperature", 1001}}, 400, "temperature is 1001");
  refused(kText, {{"prompt", "x"}, {"max_tokens", 0}}, 400, "'max_tokens' 0 needs 'echo' and 'logprobs'");
  refused(kText, {{"prompt", "x"}, {"max_tokens", 1.5}}, 400, "'max_tokens' must be a whole number");
  refused(kText, {{"prompt", "x"}, {"max_tokens", 18446744073709551615ULL}}, 400, "'max_tokens' must be a whole");
  refused(kText, {{"prompt", "x"}, {"n", 1000}}, 400, "'n' must be");
  refused(kText, {{"prompt", "x"}, {"stop", ""}}, 400, "'stop' has an empty string");
  refused(kText, {{"prompt", "x"}, {"stop", {1}}}, 400, "'stop' must be");
  refused(kText, {{"prompt", "x"}, {"cache", "lru"}}, 400, "lru");
  refused(kText, {{"prompt", "x"}, {"cache", {{"budget", 2}}}}, 400, "budget 2");
  refused(kText, {{"prompt", "x"}, {"cache", {{"colour", 2}}}}, 400, "colour");
  refused(kText, {{"prompt", "x"}, {"cache", "streaming:split=/etc/passwd"}}, 400, "server's own --method");
  refused(kText, {{"prompt", "x"}, {"cache", "full"}, {"max_tokens", 1LL << 39}}, 400, "MiB of cache");
  refused(kText, {{"prompt", "x"}, {"stream_options", Json::object()}}, 400, "needs 'stream'");
  refused(kChat, {{"messages", Json::array()}}, 400, "'messages' must be");
  refused(kChat, {{"messages", {{{"role", "wizard"}, {"content", "x"}}}}}, 400, "messages[0].role");
  refused(kChat, {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}, 400,
          "image_url': supported are text");
  refused(kChat, {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"top_logprobs", 2}}, 400, "needs 'logprobs'");
  refused("/tokenize", Json::object(), 400, "give one of 'prompt', 'messages' and 'content'");
  refused("/detokenize", {{"tokens", {1 << 30}}}, 400, "not in the vocabulary");
  refused("/v1/images", Json::object(), 404, "unknown path");

  auto client = server.client();
  EXPECT_EQ(client.Get(kText)->status, 405);
  EXPECT_EQ(client.Get(kText)->get_header_value("Allow"), "POST");
  for (const std::string body : {"", "{", "\"\xFF\"", "nonsense", "{\"prompt\": \"x\"} trailing"})
    EXPECT_EQ(client.Post(kText, body, "application/json")->status, 400) << body;
  const std::string deep = "{\"prompt\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const auto nested = client.Post(kText, deep, "application/json");
  EXPECT_EQ(nested->status, 400);
  EXPECT_NE(nested->body.find("64 levels"), std::string::npos);
  EXPECT_TRUE(server.idle_within(5));
}

TEST_F(ServerTest, ABodyThatIsTooLongIsRefused) {
  ServerSetup setup;
  setup.server.max_body = 10'000;
  Running server(setup);
  EXPECT_EQ(server.post(kText, {{"prompt", std::string(9'000, 'x')}, {"max_tokens", 1}})->status, 200);
  const auto [status, message] = server.refusal(kText, {{"prompt", std::string(11'000, 'x')}});
  EXPECT_EQ(status, 413) << message;
}

TEST_F(ServerTest, AKeyIsAskedFor) {
  ServerSetup setup;
  setup.server.api_keys = {"open sesame", "friend"};
  Running server(setup);
  const Json body = {{"prompt", "x"}, {"max_tokens", 1}};
  EXPECT_EQ(server.post(kText, body)->status, 401);
  EXPECT_EQ(server.post(kText, body, {{"Authorization", "Bearer open sesamo"}})->status, 401);
  EXPECT_EQ(server.post(kText, body, {{"Authorization", "Bearer open sesame, please"}})->status, 401);
  EXPECT_EQ(server.post(kText, body, {{"Authorization", "Bearer"}})->status, 401);
  EXPECT_EQ(server.post(kText, body, {{"Authorization", "Bearer open sesame"}})->status, 200);
  EXPECT_EQ(server.post(kText, body, {{"Authorization", "Bearer friend"}})->status, 200);
  auto client = server.client();
  EXPECT_EQ(client.Get("/v1/models")->status, 401);
  EXPECT_EQ(client.Get("/health")->status, 200);
}

TEST_F(ServerTest, ModelsAndWords) {
  Running server;
  auto client = server.client();
  const Json models = Json::parse(client.Get("/v1/models")->body);
  EXPECT_EQ(models["data"][0]["id"], "stories");
  EXPECT_EQ(Json::parse(client.Get("/v1/models/stories")->body)["object"], "model");
  EXPECT_EQ(client.Get("/v1/models/other")->status, 404);

  const std::string text = "A cat; 3 dogs.";
  const Json tokens = server.answer("/tokenize", {{"prompt", text}, {"add_special_tokens", false}});
  EXPECT_EQ(tokens["tokens"].get<std::vector<TokenId>>(), served_vocabulary()->tokenize(text, false, true));
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(server.answer("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], text);
}

TEST_F(ServerTest, AClientThatLeavesFreesItsPages) {
  Running server;
  auto client = server.client();
  int pieces = 0;
  client.Post(kText, {}, kEndless.dump(), "application/json", [&](const char*, std::size_t) { return ++pieces < 5; });
  EXPECT_GE(pieces, 5);
  client.stop();
  EXPECT_TRUE(server.idle_within(10)) << "after a stream";
  EXPECT_EQ(server.load().finished[static_cast<int>(Finish::kCancelled)], 1);

  Json whole = kEndless;
  whole["stream"] = false;
  auto impatient = server.client();
  impatient.set_read_timeout(300ms);
  EXPECT_FALSE(impatient.Post(kText, whole.dump(), "application/json"));
  impatient.stop();
  EXPECT_TRUE(server.idle_within(10)) << "after an answer in one piece";
  EXPECT_EQ(server.load().finished[static_cast<int>(Finish::kCancelled)], 2);
}

// What an aborted request did is in its log line and in the metrics, as for other requests.
TEST_F(ServerTest, AbortedRequestsAreCounted) {
  ServerSetup setup;
  setup.server.quiet = false;
  Json body = kEndless;
  body["cache"] = "streaming:budget=32";
  for (const bool stream : {true, false}) {
    ::testing::internal::CaptureStderr();
    std::string metrics;
    {
      Running server(setup);
      body["stream"] = stream;
      auto client = server.client();
      client.set_read_timeout(500ms);
      int pieces = 0;
      EXPECT_FALSE(client.Post(kText, {}, body.dump(), "application/json",
                               [&](const char*, std::size_t) { return ++pieces < 60; }));
      client.stop();
      EXPECT_TRUE(server.idle_within(10));
      metrics = server.client().Get("/metrics")->body;
    }
    std::istringstream lines(::testing::internal::GetCapturedStderr());
    Json line;
    for (std::string text; std::getline(lines, text);)
      if (text.find(kText) != std::string::npos) line = Json::parse(text);
    ASSERT_TRUE(line.contains("tokens")) << line;
    EXPECT_GE(line["tokens"], 40) << line;
    EXPECT_GT(line["evicted"], 0) << line;
    EXPECT_GT(line["ttft_ms"], 0) << line;
    EXPECT_EQ(line["finish"], "abort");
    const auto metric = [&](const std::string& name) {
      const auto at = metrics.find("\npalimpsest_" + name);
      return at == std::string::npos ? -1 : std::stod(metrics.substr(metrics.find("} ", at) + 2));
    };
    EXPECT_EQ(metric("generation_tokens_total{"), line["tokens"]);
    EXPECT_EQ(metric("evicted_tokens_total{"), line["evicted"]);
    EXPECT_EQ(metric("time_to_first_token_seconds_count{"), 1);
    EXPECT_NE(metrics.find("finished_reason=\"abort\"} 1\n"), std::string::npos);
  }
}

TEST_F(ServerTest, ASlowReaderWaitsAndOthersDoNot) {
  Running server;
  auto slow = server.client();
  Json large = kEndless;  // few tokens fill the socket's buffers
  large["logprobs"] = 20;
  std::atomic<bool> go = false, started = false;
  std::thread reader([&] {
    slow.Post(kText, {}, large.dump(), "application/json", [&](const char*, std::size_t) {
      started = true;
      while (!go) std::this_thread::sleep_for(5ms);
      return false;
    });
  });
  while (!started) std::this_thread::sleep_for(1ms);
  // The socket's buffers fill, then the mailbox; then no more tokens are generated for it.
  long long before = -1, now = server.load().tokens;
  for (int i = 0; i < 400 && now != before; ++i) {
    before = now;
    std::this_thread::sleep_for(250ms);
    now = server.load().tokens;
  }
  EXPECT_EQ(now, before) << "the answer goes on although nobody reads it";
  EXPECT_EQ(server.load().running, 1);
  EXPECT_EQ(server.answer(kText, {{"prompt", "A cat"}, {"max_tokens", 20}})["object"], "text_completion");
  go = true;
  reader.join();
  slow.stop();
  EXPECT_TRUE(server.idle_within(10));
}

TEST_F(ServerTest, AFullQueueSaysTryAgain) {
  ServerSetup setup;
  setup.scheduler.max_sequences = 1;
  setup.scheduler.max_queue = 1;
  Running server(setup);
  std::atomic<bool> leave = false;
  std::vector<std::thread> readers;
  for (int one = 1; one <= 2; ++one) {  // the second must not arrive before the first has left the queue
    readers.emplace_back([&] {
      auto client = server.client();
      client.Post(kText, {}, kEndless.dump(), "application/json", [&](const char*, std::size_t) { return !leave; });
    });
    const auto there = [&] { return server.load().running == 1 && server.load().waiting == one - 1; };
    for (int i = 0; i < 1000 && !there(); ++i) std::this_thread::sleep_for(5ms);
    ASSERT_TRUE(there());
  }
  const auto result = server.post(kText, {{"prompt", "x"}});
  EXPECT_EQ(result->status, 429);
  const int seconds = std::stoi(result->get_header_value("Retry-After"));
  EXPECT_GE(seconds, 1);
  EXPECT_LE(seconds, 60);
  EXPECT_EQ(Json::parse(result->body)["error"]["code"], "queue_full");
  // Several answers: those already queued are removed.
  EXPECT_EQ(server.post(kText, {{"prompt", "x"}, {"n", 2}})->status, 429);
  EXPECT_EQ(server.service().metrics()->rejected, 2u);
  leave = true;
  server.service().cancel_all();  // the waiting request cannot end otherwise
  for (auto& reader : readers) reader.join();
  EXPECT_TRUE(server.idle_within(10));
}

TEST_F(ServerTest, ADeadlineEndsAnAnswer) {
  ServerSetup setup;
  setup.server.timeout = 200ms;
  Running server(setup);
  Json body = kEndless;
  const auto streamed = server.post(kText, body);
  EXPECT_NE(streamed->body.find("timeout_error"), std::string::npos);
  body["stream"] = false;
  EXPECT_EQ(server.refusal(kText, body).first, 504);
  EXPECT_TRUE(server.idle_within(5));
}

TEST_F(ServerTest, AtTheEndAnswersAreFinishedOrCancelled) {
  ServerSetup setup;
  setup.server.shutdown_timeout = 300ms;
  auto server = std::make_unique<Running>(setup);
  std::string endless, body = kEndless.dump();
  std::atomic<bool> started = false;
  std::thread reader([&] {
    auto client = server->client();
    client.Post(kText, {}, body, "application/json", [&](const char* data, std::size_t size) {
      endless.append(data, size);
      started = true;
      return true;
    });
  });
  while (!started) std::this_thread::sleep_for(1ms);
  auto client = server->client();
  std::thread ending([&] { server->server().shut_down(); });
  while (!server->service().closed()) std::this_thread::sleep_for(1ms);
  const auto late = client.Post(kText, R"({"prompt":"x"})", "application/json");
  ASSERT_TRUE(late);
  EXPECT_EQ(late->status, 503);
  EXPECT_EQ(client.Get("/health")->status, 503);
  ending.join();
  reader.join();
  EXPECT_NE(endless.find("shutting_down"), std::string::npos);
  EXPECT_TRUE(server->idle_within(5));
}

// Values by name and labels. A line that is neither a sample nor a comment of a metric that follows is an error.
std::map<std::string, double> metrics_of(const std::string& text) {
  std::map<std::string, double> values;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      continue;
    }
    if (line.starts_with("# TYPE " + family + " ")) continue;
    const auto space = line.rfind(' ');
    EXPECT_TRUE(space != std::string::npos && line.starts_with(family)) << line;
    EXPECT_TRUE(values.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << "twice: " << line;
  }
  return values;
}

TEST_F(ServerTest, MetricsCount) {
  Running server;
  server.answer(kText,
                {{"prompt", "A cat"}, {"max_tokens", 80}, {"ignore_eos", true}, {"cache", "streaming:budget=32"}});
  ASSERT_TRUE(server.idle_within(5));
  const std::string text = server.client().Get("/metrics")->body;
  const std::map<std::string, double> values = metrics_of(text);
  const auto value = [&](const std::string& name, const std::string& more = "") {
    const std::string key = "palimpsest_" + name + "{model_name=\"stories\"" + more + "}";
    const auto found = values.find(key);
    EXPECT_NE(found, values.end()) << key << "\n" << text;
    return found == values.end() ? -1 : found->second;
  };
  const auto prompt = static_cast<double>(served_vocabulary()->tokenize("A cat", true, true).size());
  EXPECT_EQ(value("prompt_tokens_total"), prompt);
  EXPECT_EQ(value("generation_tokens_total"), 80);
  EXPECT_EQ(value("evicted_tokens_total"), prompt + 79 - 32);
  EXPECT_EQ(value("num_requests_running"), 0);
  EXPECT_EQ(value("num_requests_waiting"), 0);
  EXPECT_EQ(value("kv_cache_usage_perc"), 0);
  EXPECT_EQ(value("prefix_cache_bytes"), 0);
  EXPECT_EQ(value("prefix_cache_queries_total"), 0);
  EXPECT_EQ(value("prefix_cache_hits_total"), 0);
  EXPECT_EQ(value("prefix_cache_copied_bytes_total"), 0);
  EXPECT_EQ(value("request_success_total", ",finished_reason=\"length\""), 1);
  EXPECT_EQ(value("request_success_total", ",finished_reason=\"abort\""), 0);
  EXPECT_EQ(value("time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(value("time_per_output_token_seconds_count"), 79);
  EXPECT_EQ(value("time_per_output_token_seconds_bucket", ",le=\"+Inf\""), 79);
  EXPECT_GT(value("time_per_output_token_seconds_sum"), 0);
}

// Routers for vLLM read these: llm-d's endpoint picker, the Gateway API Inference Extension, vLLM's production stack.
TEST_F(ServerTest, MetricsHaveVllmsNames) {
  ServerSetup setup;
  setup.scheduler.pool_bytes = std::size_t{8} << 20;
  Running server(setup);
  server.answer(kText, {{"prompt", "A cat"}, {"max_tokens", 20}, {"ignore_eos", true}});
  ASSERT_TRUE(server.idle_within(5));
  const std::string text = server.client().Get("/metrics")->body, model = "{model_name=\"stories\"";
  const std::map<std::string, double> values = metrics_of(text);
  for (const std::string name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
        "generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
        "time_to_first_token_seconds_count", "time_per_output_token_seconds_count"}) {
    ASSERT_TRUE(values.contains("vllm:" + name + model + "}")) << name << "\n" << text;
    EXPECT_EQ(values.at("vllm:" + name + model + "}"), values.at("palimpsest_" + name + model + "}")) << name;
  }
  EXPECT_EQ(values.at("vllm:generation_tokens_total" + model + "}"), 20);
  EXPECT_EQ(values.at("vllm:inter_token_latency_seconds_count" + model + "}"), 19);
  EXPECT_EQ(values.at("vllm:gpu_cache_usage_perc" + model + "}"), 0);
  EXPECT_EQ(values.at("vllm:request_success_total" + model + ",finished_reason=\"length\"}"), 1);
  const SchedulerLoad load = server.service().scheduler().load();
  EXPECT_GT(load.blocks, 0);
  EXPECT_EQ(values.at("vllm:cache_config_info" + model + ",block_size=\"16\",num_gpu_blocks=\"" +
                      std::to_string(load.blocks) + "\"}"),
            1);
  // The pool holds the keys and values of as many tokens, of all heads.
  const HeadGeometry& heads = server.service().scheduler().decoder().model().hyper().geometry;
  std::size_t token = 0;
  for (int layer = 0; layer < heads.layers(); ++layer) {
    const LayerGeometry& each = heads.layer(layer);
    token += static_cast<std::size_t>(each.kv_heads * (each.key_width + each.value_width)) * sizeof(float);
  }
  EXPECT_LE(static_cast<std::size_t>(load.blocks) * 16 * token, setup.scheduler.pool_bytes);
  EXPECT_GT(static_cast<std::size_t>(load.blocks + 1) * 16 * token, setup.scheduler.pool_bytes / 2);
}

// Connections that come at the same time and stay: each has a thread, none waits for another to end.
TEST_F(ServerTest, EachOfManyConnectionsIsServed) {
  constexpr int kClients = 48;
  ServerSetup setup;
  setup.scheduler.max_sequences = 2;
  setup.scheduler.max_queue = kClients;
  Running server(setup);
  std::atomic<bool> leave = false;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&] {
      auto client = server.client();
      client.Post(kText, {}, kEndless.dump(), "application/json", [&](const char*, std::size_t) { return !leave; });
    });
  const auto there = [&] { return server.load().running + server.load().waiting; };
  for (int i = 0; i < 4000 && there() < kClients; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(there(), kClients);
  EXPECT_EQ(server.client().Get("/health")->status, 200);
  leave = true;
  server.server().shut_down();
  for (std::thread& client : clients) client.join();
}

TEST_F(ServerTest, APortThatIsTakenIsSaid) {
  Running first;
  ServerSetup setup;
  setup.server.port = first.port();
  EXPECT_THROW(Running second(setup), Error);
}

}  // namespace
}  // namespace palimpsest::testing
