// What web pages may do: nothing, unless they are the server's own or allowed (CVE-2024-28224 is of this kind).
#include "palimpsest/server/http/web_guard.h"

#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class WebGuard : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("palimpsest-web-{}", ::getpid());
    fs::create_directories(folder_);
    setup_.session_path = folder_.string();
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
  ServerSetup setup_;
};

const std::string kSave = R"({"prompt":"Once","max_tokens":2,"session":{"save":"mine"}})";

TEST_F(WebGuard, APageOfAnotherSiteChangesNothing) {
  const Running server(setup_);
  ASSERT_EQ(server.client().Post(kText, kSave, "application/json")->status, 200);
  const auto written = fs::last_write_time(folder_ / "mine.session");
  const httplib::Headers page = {{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}};
  for (const char* type : {"text/plain", "application/json", "application/x-www-form-urlencoded", ""}) {
    const auto refused = server.client().Post(kText, page, kSave, type);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status, 403) << type << refused->body;
    EXPECT_NE(refused->body.find("--cors-origin"), std::string::npos);
  }
  EXPECT_EQ(server.client().Delete("/v1/sessions/mine", page)->status, 403);
  EXPECT_EQ(server.client().Get("/v1/sessions", page)->status, 403);
  for (const char* origin : {"null", "http://127.0.0.1:1", "http://127.0.0.1", "file://", "x"})
    EXPECT_EQ(server.client().Delete("/v1/sessions/mine", httplib::Headers{{"Origin", origin}})->status, 403) << origin;
  EXPECT_EQ(server.client().Delete("/v1/sessions/mine", httplib::Headers{{"Sec-Fetch-Site", "same-site"}})->status,
            403);
  EXPECT_EQ(fs::last_write_time(folder_ / "mine.session"), written);
}

TEST_F(WebGuard, BodiesAreJsonByType) {
  const Running server(setup_);
  const std::string body = R"({"prompt":"Once","max_tokens":1})";
  const auto status = [&](const char* type, const httplib::Headers& headers = {}) {
    return server.client().Post(kText, headers, body, type)->status;
  };
  EXPECT_EQ(status("application/json; charset=utf-8"), 200);
  EXPECT_EQ(status("Application/JSON"), 200);
  EXPECT_EQ(status("application/x-www-form-urlencoded"), 200) << "curl -d";
  httplib::Request untyped;  // the client always sends a type
  EXPECT_NO_THROW(check_content_type(untyped));
  untyped.set_header("Sec-Fetch-Site", "same-origin");
  EXPECT_THROW(check_content_type(untyped), ApiError);
  EXPECT_EQ(status("text/plain"), 415);
  EXPECT_EQ(status("multipart/form-data; boundary=x"), 415);
  const std::string own = fmt::format("http://127.0.0.1:{}", server.port());
  EXPECT_EQ(status("application/json", {{"Origin", own}, {"Sec-Fetch-Site", "same-origin"}}), 200) << "the page";
  EXPECT_EQ(status("application/x-www-form-urlencoded", {{"Origin", own}}), 415) << "a form of the page";
  EXPECT_EQ(status("text/plain", {{"Origin", own}}), 415);
}

// curl -d sends no type of its own, and bodies of any length.
TEST_F(WebGuard, LongBodiesOfCurlAreRead) {
  const Running server(setup_);
  const std::string body = R"({"content":")" + std::string(100'000, 'x') + R"("})";
  const auto answer = server.client().Post("/tokenize", body, "application/x-www-form-urlencoded");
  EXPECT_EQ(answer->status, 200) << answer->body.substr(0, 300);
}

TEST_F(WebGuard, AnotherNameReachesNothing) {
  const auto get = [](const Running& server, const char* host, const char* path = "/v1/sessions") {
    return server.client().Get(path, {{"Host", host}})->status;
  };
  {
    const Running server(setup_);
    for (const char* name : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"}) {
      EXPECT_EQ(get(server, name), 403) << name;
      EXPECT_EQ(get(server, name, "/"), 403) << name;
      EXPECT_EQ(get(server, name, "/health"), 200) << name;
      EXPECT_EQ(server.client().Delete("/v1/sessions/x", httplib::Headers{{"Host", name}})->status, 403);
    }
    for (const char* name : {"localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8080", "192.168.0.7", "palimpsest:8080",
                             "a.localhost", "box.local"})
      EXPECT_EQ(get(server, name), 200) << name;
  }
  setup_.server.allowed_hosts = {"chat.example"};
  {
    const Running server(setup_);
    EXPECT_EQ(get(server, "Chat.Example:443"), 200);
    EXPECT_EQ(get(server, "evil.example"), 403);
  }
  setup_.server.allowed_hosts = {"*"};
  EXPECT_EQ(get(Running(setup_), "evil.example"), 200);
  setup_.server.allowed_hosts = {};
  setup_.server.api_keys = {"secret"};
  EXPECT_EQ(get(Running(setup_), "evil.example"), 401) << "the key protects it";
}

TEST_F(WebGuard, AnAllowedPageAndTheOwnOneBehindAProxyMayCall) {
  setup_.server.cors_origin = "https://a.example";
  const Running server(setup_);
  const auto status = [&](const httplib::Headers& headers) {
    return server.client().Post(kText, headers, R"({"prompt":"x","max_tokens":1})", "application/json")->status;
  };
  EXPECT_EQ(status({{"Origin", "https://a.example"}, {"Sec-Fetch-Site", "cross-site"}}), 200);
  EXPECT_EQ(status({{"Origin", "https://b.example"}}), 403);
  EXPECT_EQ(status({{"Origin", "https://c.example"}, {"X-Forwarded-Host", "c.example"}}), 200);
  EXPECT_EQ(status({{"Origin", "https://c.example"}, {"Sec-Fetch-Site", "same-origin"}}), 200);
}

}  // namespace
}  // namespace palimpsest::testing
