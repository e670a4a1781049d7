// palimpsest sweep.
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "palimpsest/eval/results_file.h"
#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class SweepTest : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    plan_ = own_file("sweep.json");
    results_ = own_file("sweep.jsonl");
    fs::remove(results_);
  }
  void TearDown() override {
    fs::remove(plan_);
    fs::remove(results_);
  }
  void plan(const json& budgets, bool with_bad_run = false) const {
    json runs = {{{"run",
                   {"eval", "needle", "-m", model_, "-t", "1", "--kind", "passkey", "--lengths", "200", "--depths",
                    "0.5", "--samples", "1", "--method", "streaming:budget={budget}"}}}};
    if (with_bad_run) runs.insert(runs.begin(), json::object({{"run", "eval needle -m /no/such/model.gguf"}}));
    std::ofstream(plan_) << json{{"each", {{"budget", budgets}}}, {"runs", runs}};
  }
  Words sweep() const { return {"sweep", plan_, "-o", results_}; }
  std::string plan_, results_;
};

TEST_F(SweepTest, GoesOnPastAFailedRunAndSkipsWhatIsDone) {
  plan({64, 96}, true);
  const Finished first = command(sweep());
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_NE(first.out.find("/no/such/model.gguf"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("3 runs done, 1 failed, 0 remaining"), std::string::npos) << first.out;
  auto lines = read_results(results_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0]["error"].get<std::string>().find("cannot"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1]["result"]["runs"][0]["budget"], 64);
  EXPECT_EQ(lines[1]["placeholders"]["budget"], "64");
  EXPECT_GT(lines[1]["peak_bytes"], 1 << 20);
  EXPECT_TRUE(lines[1]["command"].get<std::string>().starts_with("palimpsest eval needle"));
  EXPECT_FALSE(lines[1]["version"].get<std::string>().empty());

  const Finished again = command(sweep());
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.out.find("3 already done, 1 of them failed (--retry); 0 to do"), std::string::npos) << again.out;
  Words retry = sweep();
  retry.emplace_back("--retry");
  EXPECT_EQ(command(retry).code, 1);
  EXPECT_EQ(read_results(results_).size(), 4u);
}

// Killed at random times and resumed: in the end, each run is there once.
TEST_F(SweepTest, NothingIsLostOrDoneTwiceWhenItIsKilled) {
  json budgets;
  for (int budget = 32; budget < 48; ++budget) budgets.push_back(budget);
  plan(budgets);
  for (std::size_t kills = 0; kills < 4; ++kills) {
    Subprocess running(command_path(), sweep(), {{"PALIMPSEST_MODEL", ""}});
    const std::size_t wanted = 3 * (kills + 1);
    for (int i = 0; i < 3000; ++i) {
      std::error_code none;
      const auto size = fs::file_size(results_, none);
      if (!none && size > 0 && read_results(results_).size() >= wanted) break;
      ::usleep(5000);
    }
    running.signal(SIGKILL);
    EXPECT_EQ(running.wait().code, 128 + SIGKILL);
  }
  std::ofstream(results_, std::ios::app) << "{\"command\": \"palimpsest ev";
  const Finished done = command(sweep());
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  EXPECT_NE(done.out.find("incomplete last line dropped"), std::string::npos) << done.out;
  const auto lines = read_results(results_);
  EXPECT_EQ(lines.size(), 16u);
  std::set<std::string> commands;
  for (const json& line : lines) {
    EXPECT_TRUE(line.contains("result")) << line;
    commands.insert(line["command"].get<std::string>());
  }
  EXPECT_EQ(commands.size(), 16u);
}

TEST_F(SweepTest, IsReportedOn) {
  plan({64}, true);
  ASSERT_EQ(command(sweep()).code, 1);
  const std::string page = own_file("report.html"), text = own_file("report.md"), library = own_file("plotly.js");
  std::ofstream(library) << "/* Plotly */";
  const Finished done = command({"report", results_, "-o", page, "--markdown", text, "--plotly", library});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(file_content(page).find("streaming:budget=64"), std::string::npos);
  EXPECT_NE(file_content(text).find("**failed**"), std::string::npos);
  expect_refused({"report", results_}, "--markdown");
  expect_refused({"report", results_, "-o", page, "--plotly", results_}, "plotly.min.js");
  expect_refused({"report", "/no/such/results", "--markdown", text}, "/no/such/results");
  for (const std::string& each : {page, text, library}) fs::remove(each);
}

TEST_F(SweepTest, ListsWithoutRunning) {
  plan({64, 96});
  Words list = sweep();
  list.emplace_back("--list");
  const Finished done = command(list);
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 2);
  EXPECT_FALSE(fs::exists(results_));
}

TEST_F(SweepTest, RunsOneForOtherSchedulers) {
  plan({64, 96}, true);
  const auto only = [&](const std::string& number) { return command({"sweep", plan_, "--only", number}); };
  const Finished third = only("3");
  EXPECT_EQ(third.code, 0) << third.err;
  const json line = json::parse(third.out);
  EXPECT_EQ(line["placeholders"]["budget"], "96");
  EXPECT_EQ(line["result"]["runs"][0]["budget"], 96);
  const Finished bad = only("1");
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(json::parse(bad.out).contains("error"));
  expect_refused({"sweep", plan_, "--only", "4"}, "from 1 to 3");
  EXPECT_FALSE(fs::exists(results_));
}

TEST_F(SweepTest, RefusesNonsense) {
  expect_refused({"sweep", "/no/such/sweep.json"}, "/no/such/sweep.json");
  std::ofstream(plan_) << "{\"runs\": [{\"run\": \"eval needle {x}\"}]}";
  expect_refused(sweep(), "{x}");
  plan({64});
  expect_refused({"sweep", plan_, "-o", "/no/such/folder/results"}, "/no/such/folder");
  std::ofstream(results_) << "no results\n";
  expect_refused(sweep(), "line 1");
}

}  // namespace
}  // namespace palimpsest::testing
