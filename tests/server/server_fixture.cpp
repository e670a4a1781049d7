#include "tests/server/server_fixture.h"

#include "palimpsest/engine/generation/generator.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Service> make_service(const ServerSetup& setup) {
  if (!setup.encoder.empty())
    return std::make_shared<Service>(Encoder::load(setup.encoder),
                                     ServedModel{.vocabulary = Vocabulary::load(setup.encoder),
                                                 .name = "encoder",
                                                 .strict = setup.strict_model,
                                                 .chat_template = nullptr,
                                                 .method = {}},
                                     setup.scheduler, std::make_shared<ResponseStore>(setup.response_bytes));
  ServedModel model{
      .vocabulary = served_vocabulary(),
      .name = "stories",
      .aliases = setup.aliases,
      .strict = setup.strict_model,
      .chat_template = setup.chat_template.empty()
                           ? nullptr
                           : ChatTemplate::load(served_vocabulary(), setup.chat_template, setup.special_in_messages),
      .method = parse_method("streaming:budget=128"),
      .pooling = setup.pooling,
      .sampling = setup.sampling,
      .context = setup.context};
  auto sessions = setup.session_path.empty()
                      ? nullptr
                      : std::make_unique<SessionFolders>(setup.session_path, setup.session_space, setup.server.api_keys,
                                                         setup.shared_sessions);
  return std::make_shared<Service>(std::make_shared<Decoder>(setup.model == nullptr ? served_model() : setup.model, 1),
                                   std::move(model), setup.scheduler, std::move(sessions), setup.response_bytes);
}

}  // namespace

std::shared_ptr<const Model> served_model() {
  static const std::shared_ptr<const Model> model = Model::load(default_model());
  return model;
}

std::shared_ptr<const Vocabulary> served_vocabulary() {
  static const std::shared_ptr<const Vocabulary> vocabulary = Vocabulary::load(default_model());
  return vocabulary;
}

Running::Running(const ServerSetup& setup)
    : server_(make_service(setup), setup.server), port_(server_.bind()), thread_([this] { server_.run(); }) {}

Running::~Running() {
  server_.shut_down();
  thread_.join();
}

httplib::Client local_client(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(std::chrono::seconds(60));
  client.set_connection_timeout(0, 10'000'000);  // not in whole seconds: see load/http_target.cpp
  return client;
}

httplib::Result Running::post(const std::string& path, const Json& body, const httplib::Headers& headers) const {
  return client().Post(path, headers, body.dump(), "application/json");
}

Json Running::answer(const std::string& path, const Json& body) const {
  const auto result = post(path, body);
  if (!result) {
    ADD_FAILURE() << "no answer: " << httplib::to_string(result.error());
    return nullptr;
  }
  EXPECT_EQ(result->status, 200) << result->body;
  return Json::parse(result->body);
}

std::pair<int, std::string> Running::refusal(const std::string& path, const Json& body) const {
  const auto result = post(path, body);
  if (!result) return {-1, httplib::to_string(result.error())};
  const Json parsed = Json::parse(result->body);
  EXPECT_TRUE(parsed.contains("error")) << result->body;
  if (!parsed.contains("error")) return {result->status, ""};
  const Json& error = parsed["error"];  // Ollama's are texts
  return {result->status, (error.is_string() ? error : error["message"]).get<std::string>()};
}

bool Running::idle_within(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const SchedulerLoad now = load();
    if (now.running == 0 && now.waiting == 0 && now.used_bytes == 0 && now.reserved_bytes == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

std::vector<Json> events(const std::string& body) {
  std::vector<Json> out;
  std::size_t at = 0;
  bool done = false;
  while (at < body.size()) {
    const std::size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    EXPECT_FALSE(done) << "something after [DONE]";
    if (line == "data: [DONE]")
      done = true;
    else
      out.push_back(Json::parse(line.substr(6)));
    if (end == std::string::npos) break;
    at = end + 2;
  }
  EXPECT_TRUE(done) << body;
  return out;
}

std::string alone(const std::string& prompt, const std::string& method, long long tokens, float temperature,
                  std::uint32_t seed, const std::vector<std::string>& stop) {
  const ServerSetup setup;
  SessionOptions options;
  options.method = parse_method(method);
  options.cache_type = setup.scheduler.cache_type;
  options.page_size = setup.scheduler.page_size;
  options.chunk = setup.scheduler.chunk;
  Session session(std::make_shared<Decoder>(served_model(), 1), options);
  const SamplerOptions sampling{.temperature = temperature, .seed = seed};
  const auto words = served_vocabulary();
  Sampler sampler(sampling, words.get(), words->size());
  std::string text;
  const std::atomic<bool> cancel{false};
  generate(
      session, sampler, *words, words->tokenize(prompt, true, true), {.max_tokens = tokens, .stop = stop},
      [&](std::string_view piece) { text += piece; }, cancel);
  return text;
}

}  // namespace palimpsest::testing
