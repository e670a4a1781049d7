// --prefill-layerwise, as a user gives it.
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using LayerwiseTest = WithDefaultModel;

TEST_F(LayerwiseTest, TheSameTextInTheMemoryThatInfoSays) {
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "The dog went to the mill and found a red key. ";
  const std::string file = write_file("layerwise.txt", prompt.substr(0, 1200)).string();
  const Words method = {"--method", "snapkv:budget=64", "--page-size", "16", "--prefill-chunk", "100"};
  const auto with = [&](Words words) {
    words.insert(words.end(), method.begin(), method.end());
    words.insert(words.end(), {"-m", model_});
    const Finished done = command(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  };
  const Words run = {"run", "-f", file, "-n", "1", "--temp", "0", "--ignore-eos", "--json"};
  Words one_by_one = run, at_once = run;
  one_by_one.emplace_back("--prefill-layerwise");
  at_once.emplace_back("--prefill-layerwise=false");
  const auto whole = with(at_once), layers = with(one_by_one), by_default = with(run);
  EXPECT_EQ(by_default["cache_bytes_peak"], layers["cache_bytes_peak"]);
  EXPECT_EQ(layers["text"], whole["text"]);
  const std::string tokens = std::to_string(whole["prompt_tokens"].get<int>());
  EXPECT_EQ(layers["prompt_tokens"], whole["prompt_tokens"]);
  EXPECT_EQ(layers["cache_bytes"], whole["cache_bytes"]);
  const auto reading =
      with({"info", "--cache", "--json", "--tokens", tokens, "--prefill-layerwise"})["cache"]["footprint"]["reading"];
  EXPECT_EQ(layers["cache_bytes_peak"], reading["bytes_in_use"]);
  EXPECT_LT(layers["cache_bytes_peak"].get<long>(), whole["cache_bytes_peak"].get<long>() / 2);
  EXPECT_EQ(reading["terms"].back()["name"], "hidden states");
}

TEST_F(LayerwiseTest, IsRefusedWhereLayersCannotBeReadApart) {
  expect_refused(on({"run", "-p", "x", "--method", "h2o", "--prefill-layerwise"}),
                 "--prefill-layerwise with schedule step");
  expect_refused(on({"run", "-p", "x", "--method", "kvzip", "--prefill-layerwise"}), "a second time");
  expect_refused(on({"run", "-p", "x", "--method", "snapkv:policy=random", "--portable", "--prefill-layerwise"}),
                 "fast path only");
  expect_refused(on({"serve", "--method", "snapkv", "--prefill-layerwise"}), "concurrent requests");
}

}  // namespace
}  // namespace palimpsest::testing
