// palimpsest eval.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/support/in_type.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class EvalTest : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    plot_ = (fs::temp_directory_path() / ("palimpsest-eval-" + std::to_string(::getpid()) + ".json")).string();
    fs::remove(plot_);
    book_ = own_file("book.txt");
    std::ofstream book(book_);
    book << "Title\r\n*** START OF THE PROJECT GUTENBERG EBOOK OF DAYS ***\r\n";
    for (int day = 1; day <= 100; ++day)
      book << "On day " << day << " Julia went to the mill and found " << 7 * day % 41 << " keys in the snow.\r\n";
    book << "*** END OF THE PROJECT GUTENBERG EBOOK OF DAYS ***\r\n";
  }
  void TearDown() override {
    fs::remove(plot_);
    fs::remove(book_);
  }
  const std::string& book() const { return book_; }
  void expect_plot() const {
    std::ifstream file(plot_);
    const json plot = json::parse(file);
    ASSERT_FALSE(plot["panels"].empty());
    for (const json& panel : plot["panels"])
      for (const json& points : panel["series"]) EXPECT_FALSE(points.empty()) << panel["title"];
  }
  std::string plot_, book_;
};

TEST_F(EvalTest, PerplexityOfSeveralMethods) {
  const Finished done = command(on({"eval", "perplexity", "-f", book(), "--gutenberg", "--tokens", "700", "--method",
                                    "full", "--method", "streaming:budget=128", "--plot", plot_, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["tokens"], 700);
  EXPECT_EQ(out["files"][0]["bos"], true);
  EXPECT_EQ(out["files"][0]["cleaning"].size(), 2u);
  ASSERT_EQ(out["runs"].size(), 2u);
  for (const json& run : out["runs"]) {
    EXPECT_EQ(run["predicted"], 699);
    EXPECT_EQ(run["complete"], true);
    EXPECT_NEAR(run["perplexity"].get<double>(), std::exp(run["nll"].get<double>()), 1e-6);
    EXPECT_EQ(run["curve"].front()["from"], 1);
    EXPECT_EQ(run["curve"].back()["to"], 700);
  }
  EXPECT_EQ(out["runs"][0]["evicted"], 0);
  EXPECT_EQ(out["runs"][1]["evicted"], 699 - 128);
  EXPECT_EQ(out["runs"][1]["sinks"], 4);
  EXPECT_LT(out["runs"][1]["cache_bytes"], out["runs"][0]["cache_bytes"]);
  const json difference = out["runs"][1]["difference"];
  EXPECT_NEAR(difference["nll"].get<double>(),
              out["runs"][1]["nll"].get<double>() - out["runs"][0]["nll"].get<double>(), 1e-6);
  EXPECT_TRUE(difference["low"].is_null());  // 6 blocks of 128 are too few
  expect_plot();
}

TEST_F(EvalTest, Checked) {
  const std::string answers = own_file("answers.jsonl");
  const Finished done =
      command(on({"eval", "checked", "--task", "story", "--length", "320", "--samples", "2", "--method", "full",
                  "--method", "streaming:budget=64", "--answers", answers, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  ASSERT_EQ(out["runs"].size(), 2u);
  for (const json& run : out["runs"]) {
    EXPECT_EQ(run["questions"], 2);
    EXPECT_GT(run["score"], 0);
    EXPECT_LE(run["score"], 1);
    EXPECT_GT(run["perplexity"], 1);
    EXPECT_EQ(run["answer_tokens"], 2 * 320 / 4) << "it does not end earlier";
  }
  EXPECT_GT(out["runs"][1]["evicted"], 0);
  std::ifstream file(answers);
  int lines = 0;
  double sum = 0;
  for (std::string line; std::getline(file, line); ++lines)
    if (json::parse(line)["method"] == "full") sum += json::parse(line)["score"].get<double>();
  EXPECT_EQ(lines, 4);
  EXPECT_NEAR(sum / 2, out["runs"][0]["score"], 1e-9);
  fs::remove(answers);
  expect_refused(on({"eval", "checked"}), "--task");
  expect_refused(on({"eval", "checked", "--task", "storey"}), "use format, secret");
  expect_refused(on({"eval", "checked", "--task", "babi"}), "--babi");
  expect_refused(on({"eval", "checked", "--task", "story", "--babi", book()}), "--babi is of task 'babi' only");
  expect_refused(on({"eval", "checked", "--task", "babi", "--babi", book()}), "line 1 has no number");
  expect_refused(on({"eval", "checked", "--task", "secret"}), "add --chat");
  expect_refused(on({"eval", "checked", "--task", "story", "--length", "16", "--answers", "/nowhere/x"}),
                 "cannot be written");
}

TEST_F(EvalTest, PerplexityAfterAPrompt) {
  const Finished done = command(on({"eval", "perplexity", "-f", book(), "--gutenberg", "--tokens", "500", "--prompt",
                                    "300", "--method", "full", "--method", "ems:budget=128", "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["prompt"], 300);
  EXPECT_EQ(out["tokens"], 500);
  for (const json& run : out["runs"]) EXPECT_EQ(run["predicted"], 199);
  EXPECT_GT(out["runs"][1]["evicted"], 300);
  EXPECT_NE(out["runs"][0]["nll"], out["runs"][1]["nll"]);
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "500", "--method", "ems:budget=128"}), "--prompt");
}

TEST_F(EvalTest, PerplexityOfAFolderHasIntervals) {
  const fs::path folder = own_file("texts");
  fs::create_directories(folder);
  for (const char* name : {"b.txt", "a.txt", "c.md"})
    std::ofstream(folder / name) << "Once upon a time there was a little girl. " + std::string(300, 'x') + name;
  const Finished done = command(on({"eval", "perplexity", "-f", folder.string(), "--method", "full", "--method",
                                    "streaming:budget=32", "--block", "8", "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  ASSERT_EQ(out["files"].size(), 2u);
  EXPECT_TRUE(out["files"][0]["file"].get<std::string>().ends_with("a.txt"));
  const json difference = out["runs"][1]["difference"];
  EXPECT_LE(difference["low"], difference["nll"]);
  EXPECT_GE(difference["high"], difference["nll"]);
  EXPECT_EQ(out["runs"][1]["texts"].size(), 2u);
  const Finished roomy =
      command(on({"eval", "perplexity", "-f", folder.string(), "--method", "streaming:budget=4000"}));
  EXPECT_EQ(roomy.code, 0);
  EXPECT_NE(roomy.err.find("no token was evicted"), std::string::npos) << roomy.err;
  fs::remove_all(folder);
  fs::create_directories(folder);
  expect_refused(on({"eval", "perplexity", "-f", folder.string()}), "no .txt file");
  fs::remove_all(folder);
}

TEST_F(EvalTest, Stream) {
  const Finished done = command(on({"eval", "stream", "--budget", "64", "--tokens", "400", "--windows", "10",
                                    "--settled", "100", "--seed", "1", "--plot", plot_, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["tokens"], 400);
  EXPECT_EQ(out["seed"], 1);
  EXPECT_EQ(out["windows"].size(), 10u);
  EXPECT_EQ(out["tpot_ms_by_tenth"]["median"].size(), 10u);
  EXPECT_TRUE(out["growth_bytes"].is_number_integer());
  EXPECT_EQ(out["evicted"], 401 - 64);
  expect_plot();
}

// With f32 weights: products with quantised weights round the activations.
TEST_F(EvalTest, CompareTellsEqualFromDifferent) {
  model_ = in_f32(model_);
  const Words same = on({"eval", "compare", "-f", book(), "--tokens", "200", "--cache-type", "f32", "--budget", "64",
                         "--check", "--json"});
  const Finished equal = command(same);
  ASSERT_EQ(equal.code, 0) << equal.err;
  const json row = json::parse(equal.out)["rows"][0];
  EXPECT_EQ(row["steps"], 200);
  EXPECT_EQ(row["evicted"], 200 - 64);
  EXPECT_LE(row["max_relative_difference"], 1e-5);
  const Finished different = command(on({"eval", "compare", "-f", book(), "--tokens", "200", "--method",
                                         "streaming:budget=64", "--method", "streaming:budget=32", "--check"}));
  EXPECT_EQ(different.code, 1);
}

TEST_F(EvalTest, SamplesOfNeedlesAreLogged) {
  const std::string log = own_file("samples.jsonl");
  const Finished done =
      command(on({"eval", "needle", "--kind", "passkey", "--lengths", "256", "--depths", "0.5", "--samples", "2",
                  "--method", "full", "--method", "streaming:budget=64", "--log-samples", log, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  std::ifstream lines(log);
  std::map<std::string, int> right, logged;
  for (std::string line; std::getline(lines, line);) {
    const json one = json::parse(line);
    const std::string method = one["method"];
    ++logged[method];
    ASSERT_EQ(one["questions"].size(), one["answers"].size());
    ASSERT_EQ(one["tokens"].size(), one["answers"].size());
    for (std::size_t q = 0; q < one["answers"].size(); ++q) {
      EXPECT_LE(one["context"].size() + one["questions"][q].size() + one["tokens"][q].size(), 256u);
      right[method] += one["answers"][q].get<std::string>().find(one["expected"][q]) != std::string::npos ? 1 : 0;
    }
  }
  ASSERT_EQ(logged.size(), 2u);
  for (const json& run : out["runs"]) {
    EXPECT_EQ(logged[run["name"]], 2);
    EXPECT_EQ(right[run["name"]], run["right"]);
  }
  fs::remove(log);
}

TEST_F(EvalTest, Needle) {
  const Words words = on({"eval", "needle", "--kind", "passkey", "--lengths", "256,400", "--depths", "0,1", "--samples",
                          "2", "--method", "full", "--method", "streaming:budget=128", "--json"});
  for (const char* seen : {"before", "after"}) {
    Words all = words;
    all.insert(all.end(), {"--question-seen", seen});
    const Finished done = command(all);
    ASSERT_EQ(done.code, 0) << done.err;
    const json out = json::parse(done.out);
    EXPECT_EQ(out["kind"], "passkey");
    ASSERT_EQ(out["runs"].size(), 2u);
    const json& run = out["runs"][1];
    EXPECT_EQ(run["question_seen"], seen);
    EXPECT_EQ(run["questions"], 8);
    EXPECT_EQ(run["cells"].size(), 4u);
    EXPECT_EQ(run["sinks"], 4);
    EXPECT_GT(run["evicted"], 4 * 100);
    EXPECT_EQ(out["runs"][0]["evicted"], 0);
  }
  expect_refused(on({"eval", "needle", "--log-samples", book()}), "exists");
  expect_refused(on({"eval", "needle", "--log-samples", "/no/such/folder/log"}), "cannot be written");
  expect_refused(on({"eval", "needle", "--kind", "haystack"}), "passkey");
  expect_refused(on({"eval", "needle", "--lengths", "20"}), "does not fit");
  expect_refused(on({"eval", "needle", "--lengths", "200000"}), "--haystack");
  expect_refused(on({"eval", "needle", "--depths", "2"}), "--depths");
  expect_refused(on({"eval", "needle", "--haystack", "/no/such/text"}), "/no/such/text");
  expect_refused({"eval", "needle", "--synthetic", "tiny"}, "vocabulary");
}

// A fact 380 tokens back: found with the full cache and with a window that includes it, not with a window of 128.
// Measured with 20 samples: 60 of 60, 60 of 60, 0 of 60.
TEST_F(EvalTest, TheDefaultModelRecallsAFactOnlyIfTheCacheHoldsIt) {
  const Finished done = command({"eval",      "needle",
                                 "-m",        default_model(),
                                 "-t",        "1",
                                 "--kind",    "fact",
                                 "--lengths", "512",
                                 "--depths",  "0.25",
                                 "--samples", "4",
                                 "--method",  "full",
                                 "--method",  "streaming:budget=448",
                                 "--method",  "streaming:budget=128",
                                 "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const json runs = json::parse(done.out)["runs"];
  ASSERT_EQ(runs.size(), 3u);
  for (const json& run : runs) EXPECT_EQ(run["questions"], 12);
  EXPECT_GE(runs[0]["right"], 11);
  EXPECT_GE(runs[1]["right"], 11);
  EXPECT_LE(runs[2]["right"], 1);
  EXPECT_GT(runs[1]["evicted"], 0);
}

TEST_F(EvalTest, Ruler) {
  const Finished done = command(on({"eval", "ruler", "--task", "vt", "--length", "400", "--samples", "3", "--method",
                                    "streaming:budget=128", "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["kind"], "vt");
  EXPECT_GT(out["runs"][0]["evicted"], 500);
  expect_refused(on({"eval", "ruler", "--task", "qa"}), "niah-single-1");
  expect_refused(on({"eval", "ruler", "--length", "30"}), "does not fit");
}

TEST_F(EvalTest, Retention) {
  const fs::path text = own_file("kept.txt");
  std::ofstream(text) << std::string(500, 'x');
  const Finished done =
      command(on({"eval", "retention", "-f", text.string(), "--bins", "10", "--tokens", "200", "--method", "full",
                  "--method", "streaming:budget=50,sinks=4", "--json", "--list"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["task"], "retention");
  EXPECT_EQ(out["from"][1], 20);
  for (const json& head : out["runs"][0]["heads"])
    for (const json& share : head["share"]) EXPECT_EQ(share, 1);
  for (const json& head : out["runs"][1]["heads"]) {
    EXPECT_NEAR(head["share"][0].get<double>(), 4.0 / 20, 1e-9);
    EXPECT_EQ(head["share"][1], 0);
    EXPECT_EQ(head["share"][9], 1);
    json kept = {0, 1, 2, 3};
    for (int position = 200 - 46; position < 200; ++position) kept.push_back(position);
    EXPECT_EQ(head["kept"], kept);
  }
  fs::remove(text);
}

// The ten frequent words are words of stories, and the default model writes stories: it says some of them, not all
// (measured: 10 of 60). A score that is always 0 or always 1 fails.
TEST_F(EvalTest, RulerCountsTheAnswersThatWereSaid) {
  const fs::path words = own_file("words.txt");
  std::ofstream file(words);
  for (int i = 0; i < 9; ++i)
    file << "There once stood some little house where people told about garden, forest. Some market, castle. They "
            "cried, found. They looked, asked, went home, with their friend. Some happy, morning, winter, lantern. "
            "Some basket, bread, river, story, nothing, could, every, again.\n";
  file.close();
  const Finished done = command({"eval", "ruler", "-m", default_model(), "-t", "1", "--task", "cwe", "--haystack",
                                 words.string(), "--length", "600", "--samples", "6", "--method", "full", "--json"});
  fs::remove(words);
  ASSERT_EQ(done.code, 0) << done.err;
  const json run = json::parse(done.out)["runs"][0];
  EXPECT_GE(run["score"], 0.05);
  EXPECT_LE(run["score"], 0.5);
}

class LongBenchTest : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    dir_ = own_file("longbench");
    fs::create_directories(dir_);
    write("dataset2prompt.json", R"({"passage_retrieval_en": "{context}\n\n{input}\nThe answer is: "})");
    write("dataset2maxlen.json", R"({"passage_retrieval_en": 8})");
    records_ = write("records.jsonl", record("Paragraph 2") + "\n" + record("Paragraph 1") + "\n");
  }
  void TearDown() override {
    fs::remove_all(dir_);
    EvalTest::TearDown();
  }
  static std::string record(const std::string& answer) {
    std::string context;
    for (int i = 1; i < 60; ++i) context += "Paragraph " + std::to_string(i) + ": once upon a time. ";
    return json{{"input", "Which?"},   {"context", context},
                {"answers", {answer}}, {"dataset", "passage_retrieval_en"},
                {"length", 9},         {"all_classes", nullptr}}
        .dump();
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
    return (dir_ / name).string();
  }
  fs::path dir_;
  std::string records_;
};

TEST_F(LongBenchTest, AsksScoresAndWritesPredictions) {
  const std::string predictions = (dir_ / "predictions.jsonl").string();
  const Finished done = command(on({"eval", "longbench", "-f", records_, "--context", "256", "--method",
                                    "streaming:budget=64", "--predictions", predictions, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["records"], 2);
  EXPECT_EQ(out["truncated"], 2);
  EXPECT_EQ(out["runs"][0]["scores"].size(), 2u);
  EXPECT_NEAR(out["runs"][0]["prompt_tokens"].get<double>(), 2 * 248, 10);
  const Finished scored =
      command({"eval", "longbench", "--score", predictions, "--dataset", "passage_retrieval_en", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  EXPECT_EQ(json::parse(scored.out)["scores"], out["runs"][0]["scores"]);
}

TEST_F(LongBenchTest, RefusesWhatItCannotRead) {
  expect_refused(on({"eval", "longbench"}), "-f");
  expect_refused(on({"eval", "longbench", "-f", "/no/such/records"}), "/no/such/records");
  expect_refused(on({"eval", "longbench", "-f", write("bad.jsonl", "{\"input\": 1")}), "line 1");
  expect_refused(on({"eval", "longbench", "-f", write("less.jsonl", R"({"input": "a", "context": "b"})")}), "answers");
  expect_refused(on({"eval", "longbench", "-f", records_, "--dataset", "nothing"}), "nothing");
  expect_refused(on({"eval", "longbench", "-f", records_, "--dataset", "qasper"}), "no prompt");
  expect_refused(on({"eval", "longbench", "-f", records_, "--context", "20"}), "is not possible");
  expect_refused(on({"eval", "longbench", "--score", records_}), "--dataset");
  fs::remove(dir_ / "dataset2maxlen.json");
  expect_refused(on({"eval", "longbench", "-f", records_}), "dataset2maxlen.json");
}

// Facts that the default model knows from its prompt; and the sum of a text's likelihoods is its perplexity.
TEST(EvalLikelihood, FindsTheFactsAndAgreesWithPerplexity) {
  const std::string text = "The cat sat on the mat. It was happy.";
  json fact = {{"prompt",
                "note: Flora hid the yellow saw in the orchard.\nquestion: Where did Flora hide the yellow "
                "saw?\nanswer:"},
               {"choices", {" Flora hid the yellow saw in the barn.", " Flora hid the yellow saw in the orchard."}},
               {"answer", 1}};
  const std::string file =
      write_file("facts.jsonl", fact.dump() + "\n\n" + json{{"prompt", "The"}, {"choices", {text.substr(3)}}}.dump())
          .string();
  const Finished done = command({"eval", "likelihood", "-m", default_model(), "-f", file, "--bos", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const json run = json::parse(done.out)["runs"][0];
  EXPECT_EQ(run["acc"], 1);
  EXPECT_EQ(run["questions"][0]["best"], 1);
  EXPECT_EQ(run["questions"][0]["choices"][1]["greedy"], true);
  EXPECT_EQ(run["questions"][0]["choices"][0]["greedy"], false);
  const json rest = run["questions"][1]["choices"][0];

  const std::string whole = write_file("whole.txt", text).string(), begin = write_file("begin.txt", "The").string();
  const auto nats = [](const std::string& path) {
    const Finished read = command({"eval", "perplexity", "-m", default_model(), "-f", path, "--json"});
    EXPECT_EQ(read.code, 0) << read.err;
    const json out = json::parse(read.out);
    return out["runs"][0]["nll"].get<double>() * (out["tokens"].get<double>() - 1);
  };
  EXPECT_NEAR(-rest["logprob"].get<double>(), nats(whole) - nats(begin), 0.02 * nats(whole));
}

TEST(EvalLikelihood, RefusesNonsense) {
  const auto refused = [](const std::string& text, const std::string& part) {
    expect_refused({"eval", "likelihood", "-m", default_model(), "-f", write_file("bad.jsonl", text).string()}, part);
  };
  refused("", "no questions");
  refused("{\"prompt\": \"x\"}", "line 1");
  refused("\n{\"prompt\": \"x\", \"choices\": [\"y\"], \"answer\": 1}", "line 2");
  expect_refused({"eval", "likelihood", "-m", default_model(), "-f", "/nowhere"}, "/nowhere");
}

TEST_F(EvalTest, RefusesNonsense) {
  expect_refused(on({"eval", "perplexity", "-f", "/no/such/book"}), "/no/such/book");
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "1"}), "--tokens");
  expect_refused(on({"eval", "perplexity", "-f", model_}), "UTF-8");
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "50", "--plot", "/nowhere/at/all.json"}),
                 "/nowhere");
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "50", "--plot", "book.svg"}), "bench/plot.py");
  expect_refused(on({"eval", "compare", "-f", book(), "--method", "full"}), "two methods");
  expect_refused({"eval", "perplexity", "--synthetic", "tiny", "-f", book()}, "vocabulary");
}

}  // namespace
}  // namespace palimpsest::testing
