// `bench serve` over HTTP, against a server in this process.
#include "palimpsest/load/http_target.h"

#include "palimpsest/core/error.h"
#include "tests/server/server_fixture.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

using HttpTargetTest = ::testing::Test;
const auto kGoOn = [](int) { return true; };

HttpTargetOptions at(const Running& server) {
  return {.base_url = "http://127.0.0.1:" + std::to_string(server.port()), .api_key = {}, .model = {}, .cache = {}};
}

TEST_F(HttpTargetTest, HearsEveryToken) {
  Running server;
  HttpTargetOptions options = at(server);
  options.base_url += "/v1/";
  options.cache = "h2o:budget=32";
  HttpTarget target(options);
  EXPECT_EQ(target.model(), "stories");
  auto load = random_load(8, {.input = 60, .output = 20}, 3, 256, 1);
  load.push_back({.prompt = {}, .text = "Once upon a time", .output = 20});
  const LoadReport report = run_load(target, load, 4, kGoOn);
  ASSERT_EQ(report.answers.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    const LoadAnswer& answer = report.answers[i];
    EXPECT_TRUE(answer.complete) << answer.error;
    EXPECT_EQ(answer.tokens, 20);
    EXPECT_GE(answer.token_times.size(),
              10u);  // an event may hold several tokens: an incomplete character waits for its rest
    EXPECT_LE(answer.token_times.size(), 21u);
    EXPECT_EQ(answer.evicted, i < 8 ? 60 + 19 - 32 : 0) << i;
  }
  EXPECT_EQ(report.answers[0].prompt_tokens, 60);
  EXPECT_GE(report.peak.running, 0);
  EXPECT_EQ(report.cache_bytes_after, 0);
}

TEST_F(HttpTargetTest, SaysWhatTheServerSaid) {
  Running server;
  HttpTargetOptions options = at(server);
  options.cache = "nothing:budget=32";
  HttpTarget target(options);
  const LoadReport report = run_load(target, random_load(2, {.input = 4, .output = 2}, 3, 256, 1), 0, kGoOn);
  for (const auto& answer : report.answers) {
    EXPECT_FALSE(answer.complete);
    EXPECT_TRUE(answer.error.starts_with("400: ") && answer.error.find("nothing") != std::string::npos) << answer.error;
  }
}

TEST_F(HttpTargetTest, CancelsWhatRuns) {
  Running server;
  HttpTarget target(at(server));
  int asked = 0;
  const LoadReport report = run_load(target, random_load(2, {.input = 4, .output = 1'000'000}, 3, 256, 1), 0,
                                     [&](int) { return ++asked < 6; });
  for (const auto& answer : report.answers) EXPECT_EQ(answer.error, "cancelled");
  EXPECT_TRUE(server.idle_within(10));
}

TEST_F(HttpTargetTest, RefusesWhatIsNoServer) {
  const auto refused = [](const HttpTargetOptions& options, const std::string& part) {
    const std::string error = error_of([&] { HttpTarget target(options); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  HttpTargetOptions options;
  for (const char* url : {"", "127.0.0.1:80", "https://127.0.0.1", "http://"}) {
    options.base_url = url;
    refused(options, "not a server URL");
  }
  options.base_url = "http://127.0.0.1:1";
  refused(options, "does not answer");
  ServerSetup setup;
  setup.server.api_keys = {"secret"};
  Running server(setup);
  options = at(server);
  refused(options, "401");
  options.api_key = "secret";
  EXPECT_EQ(HttpTarget(options).model(), "stories");
}

}  // namespace
}  // namespace palimpsest::testing
