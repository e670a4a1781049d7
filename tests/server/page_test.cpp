// The page at "/": complete, guarded by a policy of its own, and reachable without a key. `make page-check` drives it.
#include <filesystem>

#include "tests/server/server_fixture.h"
#include "tests/support/own_file.h"
#include "tests/support/shared_dir.h"

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
    EXPECT_TRUE(method["error"].is_null()) << method;
    EXPECT_GE(method["budget"], 0) << method;
  }
  EXPECT_EQ(server.client().Post("/", "", "text/plain")->status, 405);
}

// A model without the files that `palimpsest fit` makes.
TEST(Page, MethodsSayWhyTheModelCannotRunThem) {
  ServerSetup setup;
  const std::string path = own_file("bare.gguf");
  std::filesystem::copy_file(default_model(), path, std::filesystem::copy_options::overwrite_existing);
  setup.model = Model::load(path);
  Running server(setup);
  const Json methods = Json::parse(server.client().Get("/v1/methods")->body)["data"];
  std::string refused;
  for (const Json& method : methods) {
    if (method["error"].is_null()) continue;
    const std::string id = method["id"], why = method["error"];
    refused += id + " ";
    EXPECT_NE(why.find("`palimpsest fit -m MODEL`"), std::string::npos) << why;
    EXPECT_EQ(server.refusal(kText, {{"prompt", "x"}, {"cache", {{"method", id}}}}), std::pair(400, why));
  }
  EXPECT_EQ(refused, "triattention duo learned kvzap temporal ");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace palimpsest::testing
