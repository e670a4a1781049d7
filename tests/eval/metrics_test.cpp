#include "palimpsest/eval/metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "palimpsest/eval/longbench.h"
#include "palimpsest/eval/python_text.h"
#include "palimpsest/eval/ruler.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

// 140 pairs from tools/report/pairs.py with the scores of LongBench's metrics.py; 1,000 more: docs/evaluation.md.
TEST(Metrics, AgreeWithThePublishedOnes) {
  std::ifstream file(source_dir() / "tests/eval/longbench_pairs.jsonl");
  std::map<std::string, int> count;
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line);
    const std::string dataset = row["dataset"];
    const auto classes =
        row["all_classes"].is_null() ? std::vector<std::string>{} : row["all_classes"].get<std::vector<std::string>>();
    const LongBenchTask* task = longbench_task(dataset);
    ASSERT_NE(task, nullptr);
    EXPECT_NEAR(
        longbench_score(*task, row["pred"].get<std::string>(), row["answers"].get<std::vector<std::string>>(), classes),
        row["score"].get<double>(), 1e-9)
        << line;
    ++count[dataset];
  }
  EXPECT_EQ(count.size(), 7u);
  for (const auto& [dataset, pairs] : count) EXPECT_EQ(pairs, 20) << dataset;
}

TEST(Metrics, ByHand) {
  EXPECT_DOUBLE_EQ(qa_f1("The cat, and THE dog!", "a cat dog"), 0.8);  // cat and dog, of 3 and of 2 words
  EXPECT_DOUBLE_EQ(qa_f1("", "x"), 0);
  EXPECT_NEAR(rouge_l("b c d", "a b c"), 2.0 / 3, 1e-7);
  EXPECT_EQ(rouge_l("...", "a"), 0);
  const std::vector<std::string> classes = {"Number", "Number of something", "Date"};
  EXPECT_DOUBLE_EQ(classification("Number of something", "Number of something", classes),
                   1);  // "Number" must not match, too
  EXPECT_DOUBLE_EQ(classification("Number of something or a Date", "Date", classes), 1.0 / 3);
  EXPECT_DOUBLE_EQ(retrieval("Paragraph 7 or 8", "Paragraph 8", "Paragraph "), 0.5);
  EXPECT_DOUBLE_EQ(count_share("12 and 012", "12"), 0.5);
  EXPECT_DOUBLE_EQ(code_similarity("\n# no\nabcd\nx", "abxd"), 0.75);
  const std::vector<std::string> truths = {"x", "two words"};
  EXPECT_DOUBLE_EQ(longbench_score(*longbench_task("triviaqa"), "\ntwo words\nand more", truths, {}), 1);
  EXPECT_NE(error_of([&] { longbench_score(*longbench_task("vcsum"), "x", truths, {}); }).find("--predictions"),
            std::string::npos);
  EXPECT_EQ(longbench_task("nothing"), nullptr);
  EXPECT_NEAR(python::similarity(U"abcd", U"bcde"), 0.75, 1e-12);
}

TEST(LongBench, TellsWhichLineIsBad) {
  const auto refused = [](const std::string& text, const std::string& part) {
    const std::string error = error_of([&] { read_longbench(text, "mine.jsonl", ""); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_NE(error.find("mine.jsonl"), std::string::npos) << error;
  };
  const std::string good =
      R"({"input": "i", "context": "c", "answers": ["a"], "dataset": "trec", "all_classes": null})";
  EXPECT_EQ(read_longbench(good + "\n\n" + good + "\n", "f", "").size(), 2u);
  refused("", "empty");
  refused(good + "\n{\"input\": ", "line 2");
  refused("[1]", "no JSON object");
  refused(R"({"context": "c", "answers": ["a"], "dataset": "trec"})", "\"input\" is missing");
  refused(R"({"input": 3, "context": "c", "answers": ["a"], "dataset": "trec"})", "\"input\" is no text");
  refused(R"({"input": "i", "context": "c", "dataset": "trec"})", "\"answers\" is missing");
  refused(R"({"input": "i", "context": "c", "answers": [], "dataset": "trec"})", "empty");
  refused(R"({"input": "i", "context": "c", "answers": "a", "dataset": "trec"})", "no list");
  refused(R"({"input": "i", "context": "c", "answers": ["a"]})", "\"dataset\" is missing");
  EXPECT_NE(error_of([] { read_prompts("[]", "p.json"); }).find("p.json"), std::string::npos);
  EXPECT_NE(error_of([] { read_lengths(R"({"trec": 0})", "p.json"); }).find("trec"), std::string::npos);
}

TEST(LongBench, CutsTheMiddleOut) {
  const auto vocabulary = Vocabulary::load(default_model());
  LongBenchRecord record;
  record.input = "Who was it?";
  for (int i = 0; i < 200; ++i) record.context += "Line " + std::to_string(i) + " of a story. ";
  const std::string format = "Read this.\n{context}\nQuestion: {input}\nAnswer:";
  const LongBenchPrompt whole = longbench_prompt(format, record, 100000, *vocabulary);
  EXPECT_FALSE(whole.truncated);
  EXPECT_EQ(whole.context, "Read this.\n" + record.context);
  EXPECT_EQ(whole.question, "\nQuestion: Who was it?\nAnswer:");
  const LongBenchPrompt cut = longbench_prompt(format, record, 200, *vocabulary);
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.question, whole.question);
  EXPECT_TRUE(cut.context.starts_with("Read this.\nLine 0 of")) << cut.context;
  EXPECT_TRUE(cut.context.ends_with("Line 199 of a story. ")) << cut.context;
  EXPECT_NEAR(static_cast<double>(vocabulary->tokenize(cut.context + cut.question, true, false).size()), 200, 3);
  EXPECT_NE(error_of([&] { longbench_prompt("{other}", record, 9, *vocabulary); }).find("{other}"), std::string::npos);
}

TEST(Ruler, PromptsFitAndHoldTheirAnswers) {
  const auto vocabulary = Vocabulary::load(default_model());
  std::string text;
  for (char a = 'a'; a < 'q'; ++a)
    for (char b = 'a'; b < 'q'; ++b) text += std::string("It was ") + a + b + "od here. ";
  const Haystack haystack(text, "made");
  for (const std::string& task : ruler_tasks()) {
    SCOPED_TRACE(task);
    Draw draw(2), again(2);
    const RulerPrompt made = make_ruler(task, 1000, haystack, *vocabulary, draw);
    const auto tokens = vocabulary->tokenize(made.context + made.question, true, false).size();
    EXPECT_LE(static_cast<int>(tokens) + made.tokens, 1000);
    EXPECT_EQ(ruler_score(made.context, made.answers), 1);
    EXPECT_EQ(made.answers.size(), task == "vt" ? 5u : task == "cwe" ? 10u : 1u);
    EXPECT_EQ(make_ruler(task, 1000, haystack, *vocabulary, again).context, made.context);
  }
  Draw draw(1);
  EXPECT_NE(error_of([&] { make_ruler("vt", 60, haystack, *vocabulary, draw); }).find("--length"), std::string::npos);
  EXPECT_NE(error_of([&] { make_ruler("qa", 600, haystack, *vocabulary, draw); }).find("niah-single-1"),
            std::string::npos);
  EXPECT_DOUBLE_EQ(ruler_score("ABC def", {"abc", "xyz"}), 0.5);
}

}  // namespace
}  // namespace palimpsest::testing
