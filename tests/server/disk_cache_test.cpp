// Chats that continue on another server, from the caches that it finds on disk.
#include <filesystem>

#include "palimpsest/server/sessions.h"
#include "tests/server/server_fixture.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

class ServedDiskCache : public ::testing::Test {
 protected:
  ServedDiskCache() : folder_(own_file("served-caches")) { std::filesystem::remove_all(folder_); }
  ~ServedDiskCache() override { std::filesystem::remove_all(folder_); }

  ServerSetup setup(std::vector<std::string> keys = {}) const {
    ServerSetup setup;
    setup.scheduler.pool_bytes = std::size_t{64} << 20;
    setup.scheduler.prefix_bytes = std::size_t{32} << 20;
    setup.scheduler.disk.folder = folder_;
    setup.scheduler.disk.max_bytes = std::size_t{256} << 20;
    setup.scheduler.disk.skip_slow = false;
    setup.scheduler.disk.scopes = {""};
    for (const std::string& key : keys) setup.scheduler.disk.scopes.push_back(SessionFolders::folder_of(key));
    setup.server.api_keys = std::move(keys);
    return setup;
  }
  // Sends `message` after those before; returns the usage.
  Json say(const Running& server, Json& messages, const std::string& message, const std::string& key = {}) {
    messages.push_back({{"role", "user"}, {"content", message}});
    httplib::Headers headers;
    if (!key.empty()) headers.emplace("Authorization", "Bearer " + key);
    const auto result =
        server.post(kChat, {{"messages", messages}, {"max_tokens", 30}, {"seed", messages.size()}}, headers);
    EXPECT_TRUE(result && result->status == 200) << (result ? result->body : "no answer");
    const Json answer = Json::parse(result->body);
    messages.push_back({{"role", "assistant"}, {"content", answer["choices"][0]["message"]["content"]}});
    return answer["usage"];
  }
  std::string folder_;
};

TEST_F(ServedDiskCache, AChatContinuesAfterARestart) {
  Json messages = Json::array();
  long long last = 0;
  for (const char* message : {"Tell me a story about a cat.", "And a dog?", "What did they do then?"}) {
    Running server(setup());
    const Json usage = say(server, messages, message);
    const Json& details = usage["prompt_tokens_details"];
    if (last == 0) {
      EXPECT_FALSE(details.contains("disk_tokens")) << details;
    } else {
      EXPECT_GE(details.value("disk_tokens", 0LL), last);
      EXPECT_EQ(details["disk_tokens"], details["cached_tokens"]);
    }
    last = usage["prompt_tokens"];
    const std::string metrics = server.client().Get("/metrics")->body;
    EXPECT_NE(metrics.find(std::string("palimpsest_disk_cache_hits_total{model_name=\"stories\"} ") +
                           (details.contains("disk_tokens") ? "1" : "0")),
              std::string::npos);
    EXPECT_TRUE(server.idle_within(5));
  }
  // Anthropic's API says it, too.
  Running server(setup());
  messages.push_back({{"role", "user"}, {"content", "Why?"}});
  const Json answer = server.answer("/v1/messages", {{"messages", messages}, {"max_tokens", 5}});
  EXPECT_GE(answer["usage"].value("disk_tokens", 0LL), last) << answer;
}

// The files of a key are its own, wherever it stands among a server's keys.
TEST_F(ServedDiskCache, KeysHaveTheirOwn) {
  Json messages = Json::array();
  {
    Running server(setup({"alice", "bob"}));
    say(server, messages, "Tell me a story about a cat.", "alice");
  }
  const auto found = [&](std::vector<std::string> keys, const std::string& key) {
    Running server(setup(std::move(keys)));
    Json chat = messages;
    return say(server, chat, "And a dog?", key)["prompt_tokens_details"].value("disk_tokens", 0LL);
  };
  EXPECT_EQ(found({"alice", "bob"}, "bob"), 0);
  EXPECT_EQ(found({"bob"}, "bob"), 0) << "the same number as alice had";
  EXPECT_EQ(found({}, ""), 0);
  EXPECT_GT(found({"bob", "alice"}, "alice"), 0);
}

TEST_F(ServedDiskCache, WithoutItThereAreNoMetrics) {
  Running server;
  EXPECT_EQ(server.client().Get("/metrics")->body.find("disk_cache"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
