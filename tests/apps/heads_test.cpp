// `palimpsest heads`: its files are read by split=FILE; bad input is refused.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <fstream>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

class HeadsTest : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    text_ = own_file("heads.txt");
    std::ofstream out(text_);
    for (int i = 0; i < 40; ++i) out << "Once upon a time there was a dog. The dog had a ball. ";
  }
  Words heads(Words more) const {
    more.insert(more.begin(), {"heads", "-f", text_, "--tokens", "300"});
    return on(std::move(more));
  }
  std::string text_;
};

// A budget of 104 tokens, 4 of them sinks: a head holds 4 + its share of 100.
TEST_F(HeadsTest, SharesAreABudgetOfEachHead) {
  const Finished file = command(heads({"--profile"})), listed = command(heads({"--profile", "--json"}));
  ASSERT_EQ(file.code, 0) << file.err;
  ASSERT_EQ(listed.code, 0) << listed.err;
  const std::string path = own_file("shares.txt");
  std::ofstream(path) << file.out;
  double max = 0, min = 1000, sum = 0;
  const auto json = nlohmann::json::parse(listed.out);
  for (const auto& head : json["heads"]) {
    const double share = head["share"];
    sum += share, max = std::max(max, share), min = std::min(min, share);
  }
  EXPECT_EQ(json["heads"].size(), layers_ * kv_heads_);
  EXPECT_NEAR(sum / static_cast<double>(layers_ * kv_heads_), 1, 1e-9);
  EXPECT_LT(min, max);
  const Finished info =
      command({"info", model_, "--cache", "--json", "--method", "streaming:budget=104,sinks=4,split=" + path});
  ASSERT_EQ(info.code, 0) << info.err;
  const auto writing = nlohmann::json::parse(info.out)["cache"]["footprint"]["writing"];
  EXPECT_NEAR(writing["tokens"].get<double>(), 4 + 100 * max, 1);
  EXPECT_NEAR(writing["tokens_min"].get<double>(), 4 + 100 * min, 1);
}

TEST_F(HeadsTest, MeanQueriesAreReadByTriattention) {
  const std::string path = own_file("heads.centres");
  const Finished made = command(heads({"--centres", path}));
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("the mean queries of 300 tokens"), std::string::npos) << made.err;
  const Words run = {"run", "-p", "Once", "-n", "60", "--ignore-eos", "--seed", "1"};
  const auto with = [&](const std::string& scorer) {
    Words all = run;
    all.insert(all.end(), {"--method", "triattention:budget=32,every=8,scorer=" + scorer});
    return on(std::move(all));
  };
  const Finished written = command(with(path));
  EXPECT_EQ(written.code, 0) << written.err;
  expect_refused(with(text_), text_ + ": is no scorer for policy triattention");
  expect_refused(heads({"--centres", path, "--profile"}), "--profile excludes --centres");
  expect_refused(heads({"--centres", "/no/such/folder/x"}), "/no/such/folder/x: cannot be written");
}

TEST_F(HeadsTest, BadInput) {
  for (const char* of_streaming : {"--sinks", "--recent", "--part"})
    expect_refused(heads({"--profile", of_streaming, "0.5"}), fmt::format("{} excludes --profile", of_streaming));
  expect_refused(heads({"--profile", "--keep", "0"}), "--keep 0: give a fraction between 0 and 1");
  expect_refused(heads({"--profile", "--tokens", "5"}), "too short for shares of heads: give one of at least 12");
  expect_refused(heads({"--part", "1"}), "--part 1: give a fraction between 0 and 1");
}

}  // namespace
}  // namespace palimpsest::testing
