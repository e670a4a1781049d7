// The page at "/": complete, guarded by a policy of its own, and reachable without a key. `make page-check` drives it.
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

TEST(Page, IsOneFileThatNamesNoOtherHost) {
  Running server;
  const auto got = server.client().Get("/");
  ASSERT_EQ(got->status, 200);
  EXPECT_TRUE(got->get_header_value("Content-Type").starts_with("text/html"));
  const std::string& page = got->body;
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* part : {"</html>", "id=\"messages\"", "class Memory ", "class MemoryPane ", ":root.dark"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char* part : {"/*STYLE*/", "/*SCRIPT*/", "NONCE", "\nimport ", "\nexport ", "innerHTML", " src="})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  std::size_t hosts = 0;
  for (auto at = page.find("://"); at != std::string::npos; at = page.find("://", at + 1))
    if (page.compare(at - 4, 21, "http://www.w3.org/200") != 0) ++hosts;  // the name of SVG
  EXPECT_EQ(hosts, 0u);
}

TEST(Page, RunsOnlyItsOwnScripts) {
  Running server;
  const auto first = server.client().Get("/"), second = server.client().Get("/");
  const std::string policy = first->get_header_value("Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'nonce-")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_NE(policy, second->get_header_value("Content-Security-Policy"));  // the nonce is new in each answer
  const auto begin = policy.find("nonce-") + 6;
  const std::string nonce = policy.substr(begin, policy.find('\'', begin) - begin);
  EXPECT_NE(first->body.find("<script type=\"module\" nonce=\"" + nonce + "\">"), std::string::npos);
}

TEST(Page, NeedsNoKeyButItsRequestsDo) {
  ServerSetup setup;
  setup.server.api_keys = {"secret"};
  Running server(setup);
  EXPECT_EQ(server.client().Get("/")->status, 200);
  EXPECT_EQ(server.client().Get("/v1/methods")->status, 401);
  const auto got = server.client().Get("/v1/methods", {{"Authorization", "Bearer secret"}});
  ASSERT_EQ(got->status, 200);
  const Json methods = Json::parse(got->body)["data"];
  EXPECT_GT(methods.size(), 10u);
  for (const Json& method : methods) {
    EXPECT_FALSE(method["summary"].get<std::string>().empty());
    EXPECT_NE(method["id"], "window-recompute");  // it has no cache: the server refuses it
  }
  EXPECT_EQ(server.client().Post("/", "", "text/plain")->status, 405);
}

}  // namespace
}  // namespace palimpsest::testing
