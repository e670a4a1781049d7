// A server in this process, on a free loopback port, with the repository's model.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/server/server.h"

namespace palimpsest::testing {

inline constexpr const char* kText = "/v1/completions";
inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kResponses = "/v1/responses";

struct ServerSetup {
  ServerSetup() {
    scheduler.cache_type = CacheType::kF32;
    scheduler.page_size = 16;
    scheduler.chunk = 64;
    scheduler.draft_price = 0.08;  // a measured one may allow no drafts
    server.port = 0;
    server.quiet = true;
  }
  std::shared_ptr<const Model> model;  // nullptr: served_model(); its vocabulary is the served one
  std::string encoder;                 // a file: the served model is this encoder
  SchedulerOptions scheduler;
  ServerOptions server;
  std::string chat_template = "chatml";  // empty: none
  bool special_in_messages = false;
  Pooling pooling = Pooling::kMean;
  SamplerOptions sampling;  // of requests that give none
  std::vector<std::string> aliases;
  bool strict_model = false;
  int context = 0;  // of texts that keep every token; 0: not limited
  std::size_t response_bytes = Service::kResponseBytes;
  std::string session_path;  // empty: no sessions
  std::size_t session_space = std::size_t{1} << 30;
  bool shared_sessions = false;
};

httplib::Client local_client(int port);

class Running {
 public:
  explicit Running(const ServerSetup& setup = {});
  ~Running();

  httplib::Client client() const { return local_client(port_); }
  httplib::Result post(const std::string& path, const Json& body, const httplib::Headers& headers = {}) const;
  Json answer(const std::string& path, const Json& body) const;  // of a successful request
  // Status and error message of a failed request.
  std::pair<int, std::string> refusal(const std::string& path, const Json& body) const;

  Service& service() { return server_.service(); }
  Server& server() { return server_; }
  SchedulerLoad load() { return service().scheduler().load(); }
  bool idle_within(double seconds);  // no request runs or waits, and no page is in use
  int port() const { return port_; }

 private:
  Server server_;
  int port_;
  std::thread thread_;
};

std::shared_ptr<const Model> served_model();
std::shared_ptr<const Vocabulary> served_vocabulary();

// The objects of a stream of events, without the closing [DONE]; fails the test if that is missing.
std::vector<Json> events(const std::string& body);

// The text of a completion.
inline std::string text_of(const Json& answer, int choice = 0) {
  return answer["choices"][choice]["text"].get<std::string>();
}

// The text of a single session.
std::string alone(const std::string& prompt, const std::string& method, long long tokens, float temperature,
                  std::uint32_t seed, const std::vector<std::string>& stop = {});

}  // namespace palimpsest::testing
