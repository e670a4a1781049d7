#include "palimpsest/eval/suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

SuiteResult result(std::string task, SuiteGroup group, std::string method, double share, double score) {
  return {.task = std::move(task),
          .method = std::move(method),
          .group = group,
          .share = share,
          .budget = 64,
          .score = score,
          .low = score - 0.1,
          .high = score + 0.1,
          .questions = 100,
          .cache_bytes = 1 << 20,
          .process_bytes = 1 << 24,
          .ms_per_token = 5,
          .error = {}};
}

TEST(Suite, NamesAreUniqueAndCommandsAreComplete) {
  const Suite suite = default_suite();
  std::set<std::string> names;
  for (const SuiteTask& task : suite.tasks) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    const std::string run = filled_command(task.run, {{"length", "1"},
                                                      {"half", "2"},
                                                      {"twice", "2"},
                                                      {"total", "3"},
                                                      {"samples", "4"},
                                                      {"seed", "5"},
                                                      {"text", "t.txt"},
                                                      {"data", "shared"}});
    EXPECT_EQ(run.find('{'), std::string::npos) << run;
    EXPECT_TRUE(run.starts_with("eval ")) << run;
  }
  for (const SuiteMethod& method : suite.methods) {
    EXPECT_TRUE(names.insert(method.name).second || method.name == method.method) << method.name;
    EXPECT_EQ(method.method.find("budget"), std::string::npos);
  }
  EXPECT_NE(error_of([] { filled_command("eval {nothing}", {}); }).find("{nothing}"), std::string::npos);
}

TEST(Suite, ChoosesByName) {
  const Suite suite = default_suite();
  EXPECT_EQ(chosen_tasks(suite, {}).size(), suite.tasks.size());
  const std::vector<std::string> tasks = {"text", "facts"}, wrong = {"fact"}, methods = {"h2o", "tova:sinks=9"};
  EXPECT_EQ(chosen_tasks(suite, tasks)[0].name, "text");
  EXPECT_NE(error_of([&] { chosen_tasks(suite, wrong); }).find("did you mean 'facts'"), std::string::npos);
  EXPECT_EQ(chosen_methods(suite, methods)[0].method, "h2o:sinks=4");
  EXPECT_EQ(chosen_methods(suite, methods)[1].method, "tova:sinks=9");
}

TEST(Suite, ResultsSurviveTheirLine) {
  SuiteResult one = result("facts", SuiteGroup::kKnown, "h2o", 0.25, 0.5);
  one.low = std::nan("");
  one.error = "no file";
  const json line = {{"command", "x"}, {"suite", to_json(one)}};
  const auto read = suite_result(line);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(one));
  EXPECT_FALSE(suite_result(json{{"command", "x"}}));
}

TEST(Suite, RankCorrelation) {
  const std::vector<double> a = {1, 2, 3, 4}, same = {10, 20, 30, 31}, reversed = {4, 3, 2, 1}, ties = {1, 1, 2, 2},
                            flat = {1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(rank_correlation(a, same), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(a, reversed), -1);
  EXPECT_NEAR(rank_correlation(a, ties), 0.8944, 1e-4);  // scipy.stats.spearmanr
  EXPECT_TRUE(std::isnan(rank_correlation(a, flat)));
  EXPECT_TRUE(std::isnan(rank_correlation(std::span(a).first(2), std::span(same).first(2))));
}

TEST(Suite, TasksThatTheFullCacheFailsAreInNoMean) {
  const std::vector<SuiteResult> all = {
      result("facts", SuiteGroup::kUnknown, "full", 1, 0.8), result("hard", SuiteGroup::kUnknown, "full", 1, 0.2),
      result("text", SuiteGroup::kText, "full", 1, 20),      result("facts", SuiteGroup::kUnknown, "worse", 0.25, 0.2),
      result("text", SuiteGroup::kText, "worse", 0.25, 20),  result("facts", SuiteGroup::kUnknown, "better", 0.25, 0.6),
      result("text", SuiteGroup::kText, "better", 0.25, 22)};
  const std::string report = suite_markdown(all, {.model = "m.gguf", .machine = "cpu", .version = "1", .length = 512});
  EXPECT_NE(report.find("## 1/4 of the bytes"), std::string::npos) << report;
  EXPECT_NE(report.find("| better | 75% | +0.095 | 64 |"), std::string::npos) << report;
  EXPECT_NE(report.find("| worse | 25% | +0.000 | 64 |"), std::string::npos) << report;
  EXPECT_LT(report.find("| better"), report.find("| worse"));
  EXPECT_NE(report.find("(of LongBench: a tenth) of: hard"), std::string::npos) << report;
}

TEST(Suite, GroupsHaveMeansOfTheirOwn) {
  SuiteResult full = result("secret", SuiteGroup::kInstructions, "full", 1, 1),
              rouge = result("news", SuiteGroup::kWritten, "full", 1, 0.2);
  rouge.solved = 0.1;
  SuiteResult forgets = result("secret", SuiteGroup::kInstructions, "forgets", 0.25, 0.2);
  SuiteResult keeps = result("secret", SuiteGroup::kInstructions, "keeps", 0.25, 0.6);
  keeps.file = "m.profile";
  keeps.file_bytes = 2048;
  keeps.saw = "secret";
  const std::vector<SuiteResult> all = {full,
                                        rouge,
                                        result("written", SuiteGroup::kShown, "full", 1, 9),
                                        forgets,
                                        result("news", SuiteGroup::kWritten, "forgets", 0.25, 0.2),
                                        result("written", SuiteGroup::kShown, "forgets", 0.25, 12),
                                        keeps,
                                        result("news", SuiteGroup::kWritten, "keeps", 0.25, 0.1)};
  SuiteAbout about;
  about.left_out = {"babi (needs a file)"};
  const std::string report = suite_markdown(all, about);
  EXPECT_NE(report.find("| method | instructions | long answers | tokens |"), std::string::npos) << report;
  EXPECT_NE(report.find("| keeps † | 60% | 50% | 64 |"), std::string::npos) << report;
  EXPECT_NE(report.find("| forgets | 20% | 100% | 64 |"), std::string::npos) << report;
  EXPECT_NE(report.find("| 2.0 | 60% (50–70) |"), std::string::npos) << report;
  EXPECT_LT(report.find("| keeps"), report.find("| forgets"));
  for (const char* sentence : {"keeps reads m.profile beside", "keeps † has seen the generator of tasks: secret",
                               "Left out: babi (needs a file)"})
    EXPECT_NE(report.find(sentence), std::string::npos) << sentence << report;
}

TEST(Suite, AFileAddsTasksAndMethods) {
  Suite suite = default_suite();
  const std::size_t tasks = suite.tasks.size();
  add_suite(
      suite,
      R"({"tasks": [{"name": "mine", "group": "work", "run": "eval needle", "score": "x", "solved": 0.2}, {"name": "facts", "group": "known", "run": "eval ruler"}],
                       "methods": [{"name": "h2o", "method": "h2o:sinks=8", "saw": "mine"}]})",
      "mine.json");
  EXPECT_EQ(suite.tasks.size(), tasks + 1);
  const std::vector<std::string> names = {"mine", "facts"}, methods = {"h2o"};
  const auto chosen = chosen_tasks(suite, names);
  EXPECT_EQ(chosen[0].group, SuiteGroup::kWork);
  EXPECT_EQ(chosen[0].score, "x");
  EXPECT_EQ(chosen[0].solved, 0.2);
  EXPECT_EQ(chosen[1].run, "eval ruler") << "a known name is replaced";
  EXPECT_EQ(chosen_methods(suite, methods)[0].saw, "mine");
  const auto error = [&](const std::string& text) { return error_of([&] { add_suite(suite, text, "mine.json"); }); };
  EXPECT_NE(error("{").find("mine.json: "), std::string::npos);
  EXPECT_NE(error(R"({"tasks": [{"name": "x", "group": "y", "run": "eval needle"}]})").find("no group 'y'"),
            std::string::npos);
  EXPECT_NE(error(R"({"tasks": [{"name": "x", "group": "work", "run": "rm -r /"}]})").find("a subcommand of eval"),
            std::string::npos);
}

TEST(Suite, WhatWasNotMeasuredIsNamed) {
  SuiteResult failed = result("facts", SuiteGroup::kUnknown, "<kvzap>", 0.125, std::nan(""));
  failed.error = "needs a file";
  const std::vector<SuiteResult> all = {result("facts", SuiteGroup::kUnknown, "full", 1, 0.8), failed};
  EXPECT_NE(suite_markdown(all, {}).find("Not measured at 1/8: <kvzap> (needs a file)"), std::string::npos);
  const std::string page = suite_html(all, {});
  EXPECT_NE(page.find("&lt;kvzap&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<kvzap>"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
