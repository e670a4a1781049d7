#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "palimpsest/eval/results_file.h"
#include "palimpsest/eval/sweep_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

TEST(SweepPlan, AllCombinationsOnceInOrder) {
  const auto runs = parse_sweep(R"({
    "each": {"budget": [64, 128]},
    "runs": [{"run": "eval needle --method {method} --lengths {length}",
              "each": {"method": ["full", "streaming:budget={budget}"], "length": 512}},
             {"run": ["eval", "perplexity", "-f", "a book.txt"]}]})",
                                "mine.json");
  std::vector<std::string> commands;
  for (const SweepRun& run : runs) commands.push_back(run.command());
  EXPECT_EQ(commands, (std::vector<std::string>{"palimpsest eval needle --method full --lengths 512",
                                                "palimpsest eval needle --method streaming:budget=64 --lengths 512",
                                                "palimpsest eval needle --method streaming:budget=128 --lengths 512",
                                                "palimpsest eval perplexity -f 'a book.txt'"}));
  EXPECT_EQ(runs[1].placeholders, (std::map<std::string, std::string>{
                                      {"budget", "64"}, {"length", "512"}, {"method", "streaming:budget={budget}"}}));
  EXPECT_FALSE(runs[0].placeholders.contains("budget"));
}

TEST(SweepPlan, RefusesWhatIsNone) {
  const auto refused = [](const std::string& text, const std::string& part) {
    const std::string error = error_of([&] { parse_sweep(text, "mine.json"); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_NE(error.find("mine.json"), std::string::npos) << error;
  };
  refused("{", "parse");
  refused("[]", "no \"runs\"");
  refused(R"({"runs": []})", "not a single run");
  refused(R"({"runs": [{"run": "rm -rf /"}]})", "eval");
  refused(R"({"runs": [{"run": "eval needle --budget {budget}"}]})", "{budget}");
  refused(R"({"runs": [{"run": "eval {a", "each": {"a": 1}}]})", "{a");
  refused(R"({"runs": [{"run": "eval {a}", "each": {"a": "{b}", "b": "{a}"}}]})", "circular");
  refused(R"({"runs": [{"run": "eval {a}", "each": {"a": [{}]}}]})", "neither");
  refused(R"({"runs": [{"run": "eval {a}", "each": {"a": []}}]})", "no values");
  refused(R"({"runs": [{"each": {}}]})", "run");
}

class ResultsFileTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = own_file("results.jsonl");
};

TEST_F(ResultsFileTest, KeepsWholeLinesAndDropsATornOne) {
  {
    ResultsFile file(path_);
    EXPECT_TRUE(file.lines().empty());
    file.append({{"command", "a"}});
    file.append({{"command", "b"}});
  }
  const std::string line = json{{"command", "c"}, {"more", std::string(50, 'x')}}.dump();
  const auto whole = std::filesystem::file_size(path_);
  for (std::size_t cut = 1; cut <= line.size(); ++cut) {
    std::filesystem::resize_file(path_, whole);
    std::ofstream(path_, std::ios::app) << line.substr(0, cut);
    EXPECT_EQ(read_results(path_).size(), 2u);  // reading changes nothing
    EXPECT_EQ(std::filesystem::file_size(path_), whole + cut);
    ResultsFile file(path_);
    EXPECT_TRUE(file.torn());
    EXPECT_EQ(file.lines().size(), 2u);
    EXPECT_EQ(std::filesystem::file_size(path_), whole);
  }
  ResultsFile file(path_);
  EXPECT_FALSE(file.torn());
  file.append({{"command", "c"}});
  EXPECT_EQ(read_results(path_)[2]["command"], "c");
}

TEST_F(ResultsFileTest, OneWriterAtATimeAndNoForeignFile) {
  {
    ResultsFile first(path_);
    EXPECT_NE(error_of([&] { ResultsFile second(path_); }).find("another sweep"), std::string::npos);
  }
  std::ofstream(path_) << "{\"a\": 1}\nnot json\n{\"a\": 2}\n";
  EXPECT_NE(error_of([&] { ResultsFile file(path_); }).find("line 2"), std::string::npos);
  EXPECT_NE(error_of([&] { read_results("/no/such/file"); }).find("/no/such/file"), std::string::npos);
  EXPECT_NE(error_of([&] { ResultsFile file("/no/such/folder/file"); }).find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
