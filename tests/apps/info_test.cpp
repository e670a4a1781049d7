// palimpsest info and methods.
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using InfoTest = WithStories;

TEST_F(InfoTest, SaysWhatTheFileHolds) {
  const Finished done = command({"info", model_, "--json", "--budget", "100", "--cache-type", "f32"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["parameters"], 260032);
  EXPECT_EQ(json["layers"], 5);
  EXPECT_EQ(json["kv_heads"], 4);
  EXPECT_EQ(json["head_dim"], 8);
  EXPECT_EQ(json["trained_context"], 512);
  EXPECT_EQ(json["vocabulary"]["tokens"], 512);
  EXPECT_EQ(json["tensors"][0]["count"], 47);
  EXPECT_EQ(json["cache"]["bytes_per_token"], 5 * 4 * 16 * 4);  // layers x heads x (key + value) x f32
  EXPECT_EQ(json["cache"]["bytes_at_budget"], 100 * 5 * 4 * 16 * 4);

  const Finished text = command({"info", "-m", model_});
  EXPECT_EQ(text.code, 0);
  for (const char* part :
       {"llama", "260,032", "5 layers", "8 query heads, 4 KV heads", "512 tokens, SPM", "640 B a token"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
}

TEST_F(InfoTest, TheModelCanComeFromTheEnvironment) {
  const Finished done = run_program(PALIMPSEST_PROGRAM, {"info", "--json"}, "", {{"PALIMPSEST_MODEL", model_}});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(nlohmann::json::parse(done.out)["model"], model_);
}

TEST(Info, Synthetic) {
  const Finished done = command({"info", "--synthetic", "llama-3.2-1b@layers=1@type=q4_0@vocab=1000", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["layers"], 1);
  EXPECT_TRUE(json["vocabulary"].is_null());
}

TEST(Info, Lists) {
  EXPECT_TRUE(command({"info", "--devices"}).out.starts_with("cpu "));
  EXPECT_EQ(nlohmann::json::parse(command({"info", "--devices", "--json"}).out)[0]["name"], "cpu");
  EXPECT_NE(command({"info", "--families"}).out.find("qwen3"), std::string::npos);
}

TEST(Methods, AreListedWithTheirPolicies) {
  const Finished text = command({"methods"});
  EXPECT_EQ(text.code, 0);
  for (const char* name : {"full", "streaming", "recent", "2309.17453"})
    EXPECT_NE(text.out.find(name), std::string::npos) << name;
  const auto json = nlohmann::json::parse(command({"methods", "--json"}).out);
  EXPECT_GE(json["methods"].size(), 2u);
  EXPECT_GE(json["policies"].size(), 1u);
}

}  // namespace
}  // namespace palimpsest::testing
