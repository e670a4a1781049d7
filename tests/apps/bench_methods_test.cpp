// palimpsest bench methods.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "palimpsest/eval/results_file.h"
#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class BenchMethods : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    folder_ = own_file("methods");
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Words words(const std::string& methods, const std::string& tasks) const {
    return {"bench",     "methods", "-m",       model_, "-o",        folder_, "--length", "256",
            "--samples", "1",       "--shares", "1/4",  "--methods", methods, "--tasks",  tasks};
  }
  std::string report() const {
    std::ostringstream out;
    out << std::ifstream(folder_ + "/report.md").rdbuf();
    return out.str();
  }
  std::string folder_;
};

TEST_F(BenchMethods, MeasuresAtEqualBytesAndResumes) {
  const Finished first = command(words("h2o;lagkv:recent=16", "passkey;text"));
  ASSERT_EQ(first.code, 0) << first.err;
  const auto lines = read_results(folder_ + "/results.jsonl");
  std::size_t bytes_of_keydiff = 0, results = 0;
  for (const auto& line : lines)
    if (line.contains("seen") && line["command"].get<std::string>().find("keydiff") != std::string::npos)
      bytes_of_keydiff = line["result"]["runs"][0]["cache_bytes"];
  ASSERT_GT(bytes_of_keydiff, 0u);
  for (const auto& line : lines) {
    if (!line.contains("suite")) continue;
    ++results;
    const auto& suite = line["suite"];
    if (suite["task"] == "text" && suite["method"] != "full") {
      EXPECT_LE(suite["cache_bytes"], bytes_of_keydiff * 1.01) << suite;
      EXPECT_GE(suite["cache_bytes"], bytes_of_keydiff * 0.9) << suite;
    }
  }
  EXPECT_GE(results, 4u);
  const std::string before = report();
  EXPECT_NE(before.find("| h2o |"), std::string::npos) << before;
  EXPECT_TRUE(fs::exists(folder_ + "/report.html"));

  const Finished again = command(words("h2o;lagkv:recent=16", "passkey;text"));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_results(folder_ + "/results.jsonl").size(), lines.size()) << "nothing is measured twice";
  EXPECT_EQ(report(), before);
}

// What a kill leaves: whole lines, then the beginning of one. The same command measures what is missing, and its
// results are those of a run that was not killed (times aside).
TEST_F(BenchMethods, AKilledRunIsResumedToTheSameResults) {
  const Words all = words("h2o", "passkey;text");
  ASSERT_EQ(command(all).code, 0);
  const std::string path = folder_ + "/results.jsonl";
  const auto scores = [&] {
    std::multiset<std::string> out;
    for (const auto& line : read_results(path))
      if (line.contains("suite"))
        out.insert(fmt::format("{} {} {} {} {} {}", line["suite"]["task"].dump(), line["suite"]["method"].dump(),
                               line["suite"]["share"].dump(), line["suite"]["budget"].dump(),
                               line["suite"]["score"].dump(), line["suite"]["cache_bytes"].dump()));
    return out;
  };
  const auto whole = scores();
  ASSERT_GE(whole.size(), 3u) << "both tasks with the full cache, and h2o on those that it solves";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string lines = text.str();
  const std::size_t count = static_cast<std::size_t>(std::ranges::count(lines, '\n'));
  for (const std::size_t kept : {std::size_t{1}, count / 2, count - 1}) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < kept; ++i) end = lines.find('\n', end) + 1;
    const std::size_t next = lines.find('\n', end);
    std::ofstream(path, std::ios::trunc) << lines.substr(0, end + (next - end) / 2);
    ASSERT_LT(scores().size(), whole.size());
    const Finished resumed = command(all);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(scores(), whole) << kept << " of " << count << " lines were kept";
  }
}

TEST_F(BenchMethods, SaysWhatItCannotDo) {
  EXPECT_NE(command(words("h2o", "passky")).err.find("did you mean 'passkey'"), std::string::npos);
  Words bad = words("h2o", "text");
  bad.insert(bad.end(), {"--shares", "0.25"});
  EXPECT_NE(command(bad).err.find("1/4"), std::string::npos);
  const Finished missing = command(words("kvzap", "text"));
  EXPECT_EQ(missing.code, 0) << missing.err;
  EXPECT_NE(missing.out.find("Not measured at 1/4: kvzap"), std::string::npos) << missing.out;
}

// Tasks and methods of a file; tasks that cannot be measured are left out by name; results as JSON.
TEST_F(BenchMethods, TakesMoreTasksAndSaysWhatItLeavesOut) {
  fs::create_directories(folder_ + "/data/tasks/babi");
  std::ofstream(folder_ + "/data/tasks/babi/qa1_single-supporting-fact_test.txt")
      << "1 Edna went to the mill.\n2 Where is Edna? \tmill\t1\n";
  std::ofstream(folder_ + "/more.json")
      << R"({"tasks": [{"name": "mine", "group": "shown", "score": "perplexity", "run": "eval checked --task story --haystack {text} --length {length} --samples {samples} --seed {seed}"}],
             "methods": [{"name": "scored", "method": "learned:sinks=4", "saw": "facts"}]})";
  Words all = words("scored", "mine;babi qa1;babi qa2");
  all.insert(all.end(), {"--suite", folder_ + "/more.json", "--data", folder_ + "/data", "--json"});
  const Finished done = command(all);
  ASSERT_EQ(done.code, 0) << done.err;
  const auto out = nlohmann::json::parse(done.out);
  EXPECT_EQ(out["left_out"].size(), 1u) << out["left_out"];
  EXPECT_NE(out["left_out"].dump().find("babi qa2 (needs tasks/babi/qa2"), std::string::npos);
  bool mine = false;
  for (const auto& run : out["runs"]) {
    if (run["task"] != "mine") continue;
    EXPECT_GT(run["score"], 1) << "a perplexity";
    if (run["method"] != "scored") continue;
    mine = true;
    EXPECT_EQ(run["saw"], "facts");
    EXPECT_EQ(run["file"], "palimpsest-stories.scorer");
    EXPECT_EQ(run["file_bytes"], fs::file_size(fs::path(model_).replace_extension(".scorer")));
    EXPECT_NE(run["spelled"].get<std::string>().find("budget="), std::string::npos);
  }
  EXPECT_TRUE(mine) << done.out;
  EXPECT_NE(report().find("scored † has seen the generator of tasks: facts"), std::string::npos) << report();

  Words none = words("h2o", "babi qa2");
  none.insert(none.end(), {"--data", folder_});
  expect_refused(none, "none of these tasks can be measured: babi qa2");
  none = words("h2o", "text");
  none.insert(none.end(), {"--suite", folder_ + "/nothing.json"});
  expect_refused(none, "nothing.json");
}

// Two tasks of one command: it runs once, and both have a line.
TEST_F(BenchMethods, TasksShareARun) {
  ASSERT_EQ(command(words("h2o", "repetition;written")).code, 0);
  std::set<std::string> tasks;
  std::size_t runs = 0, lines = 0;
  for (const auto& line : read_results(folder_ + "/results.jsonl")) {
    ++lines;
    runs += line.contains("result") && line.contains("suite") ? 1 : 0;
    if (line.contains("suite")) tasks.insert(line["suite"]["task"].get<std::string>());
  }
  EXPECT_EQ(runs, 2u) << "the full cache's, and h2o's";
  EXPECT_EQ(tasks, (std::set<std::string>{"repetition", "written"}));
  ASSERT_EQ(command(words("h2o", "repetition;written")).code, 0);
  EXPECT_EQ(read_results(folder_ + "/results.jsonl").size(), lines);
}

TEST_F(BenchMethods, Lists) {
  const Finished list = command({"bench", "methods", "--list"});
  EXPECT_EQ(list.code, 0);
  for (const char* name : {"facts", "corrected", "babi qa1", "tool call, JSON", "keydiff, shares"})
    EXPECT_NE(list.out.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace palimpsest::testing
