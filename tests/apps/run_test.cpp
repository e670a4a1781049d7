// palimpsest run, as a user runs it.
#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/support/in_type.h"
#include "tests/support/own_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

using RunTest = WithDefaultModel;

// stories260K, and the greedy text that its author published.
class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = stories260k();
    if (!model) GTEST_SKIP() << kNeedsStories260K;
    model_ = *model;
    golden_ = file_content(std::filesystem::path(model_).parent_path() / "golden-greedy.txt");
  }
  Finished run(const Words& more) const {
    Words words = {"run", "-m", model_, "-t", "1", "--temp", "0", "-n", "256"};
    words.insert(words.end(), more.begin(), more.end());
    return command(words);
  }
  std::string model_, golden_;
};

TEST_F(GoldenTest, IsWrittenFromNothing) {
  ASSERT_EQ(golden_.size(), 566u);  // 565 characters and a newline
  const Finished done = run({});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, golden_);
}

TEST_F(GoldenTest, IsWrittenWhateverTheMechanismPositionsAndType) {
  for (const Words& words : {Words{"--method", "full"}, Words{"--method", "streaming", "--mechanism", "shift"},
                             Words{"--method", "streaming", "--positions", "original"}, Words{"--cache-type", "f32"},
                             Words{"--cache-type", "bf16"}, Words{"--page-size", "16"},
                             Words{"--method", "streaming:rerotate=fused,every=8"}, Words{"--portable"}}) {
    const Finished done = run(words);
    EXPECT_EQ(done.out, golden_) << words.front() << done.err;
  }
}

// Uses the repository's model only. The answer is copied from the prompt and its tokens lead by far, so that rounding
// and cache types do not change it. The window of the last run is too short for the fact.
TEST_F(RunTest, AnswersFromThePromptWhateverTheMechanismPositionsAndType) {
  const std::string prompt =
      "note: Mira hid the red key in the mill.\nnote: Otto likes honey best of all.\n"
      "note: The dog of Anna is called Pepper.\nstory: On a cold day in winter, Julia could not find her blue saw. It "
      "had been a gift from her father.\nquestion: Where did Mira hide the red key?\nanswer:";
  const auto answer = [&](const Words& words) {
    Words all = {"run", "-m", default_model(), "-t", "1", "--raw", "-p", prompt, "--temp", "0", "-n", "10"};
    all.insert(all.end(), words.begin(), words.end());
    const Finished done = command(all);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  };
  for (const Words& words :
       {Words{"--method", "full"}, Words{"--method", "streaming", "--mechanism", "shift"},
        Words{"--method", "streaming", "--positions", "original"}, Words{"--cache-type", "f32"},
        Words{"--cache-type", "bf16"}, Words{"--cache-type", "q8_0"}, Words{"--cache-type-v", "q8_0"},
        Words{"-ctk", "q8_0", "-ctv", "bf16"}, Words{"--portable", "--cache-type-k", "f32"}, Words{"--page-size", "16"},
        Words{"--method", "streaming:rerotate=fused,every=8"}, Words{"--portable"}, Words{"--prefill-chunk", "7"},
        Words{"-t", "2"}, Words{"--method", "h2o:budget=72"}})
    EXPECT_EQ(answer(words), " Mira hid the red key in the mill.\n") << words.back();
  EXPECT_EQ(answer({"--method", "streaming:budget=32"}).find("mill"), std::string::npos);
}

// A model with a chat template answers the prompt as a user's message, unless --raw.
TEST_F(RunTest, UsesTheModelsChatTemplate) {
  const Words end = {"-t", "1", "--temp", "0", "-n", "12"};
  const auto text = [&](Words words) {
    words.insert(words.begin(), "run");
    words.insert(words.end(), end.begin(), end.end());
    const Finished done = command(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  };
  const std::string prompt = "Once upon a time", answer = text({model_, prompt});
  EXPECT_EQ(text({"-m", model_, prompt}), answer);
  EXPECT_EQ(text({"-m", model_, "-p", prompt}), answer);
  EXPECT_EQ(text({"-m", model_, "-p", prompt, "--chat-template", "chatml"}), answer);
  EXPECT_NE(text({"-m", model_, "--raw", "-p", prompt}), answer);
  EXPECT_EQ(text({"-m", model_}), text({"-m", model_, "--raw"})) << "an empty prompt is no message";
}

// 4,096 tokens, twice the default model's trained context, and a question about their middle.
TEST_F(RunTest, AnswersAboutTheMiddleOfALongDocumentWithoutAnyFlag) {
  std::string text =
      file_content(source_dir() / "src" / "palimpsest" / "eval" / "data" / "haystack.txt").substr(0, 15200);
  text.insert(text.find('\n', text.size() / 2) + 1, "note: Mira hid the red key in the mill.\n");
  const std::string file = write_file("document.txt", text + "\nquestion: Where did Mira hide the red key?\nanswer:");
  const auto with = [&](Words more) {
    more.insert(more.begin(), {"run", "-m", default_model(), "--raw", "-f", file, "--temp", "0", "-n", "12", "--json"});
    const Finished done = command(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return std::pair(nlohmann::json::parse(done.out), done.err);
  };
  const auto [answer, line] = with({});
  EXPECT_GT(answer["prompt_tokens"], 4000);
  EXPECT_GT(answer["evicted"], 2000);
  EXPECT_TRUE(answer["text"].get<std::string>().starts_with(" Mira hid the red key in the mill.")) << answer["text"];
  EXPECT_TRUE(answer["method"].get<std::string>().starts_with("auto:policy=keydiff,budget=")) << answer["method"];
  EXPECT_TRUE(line.starts_with("palimpsest: auto keeps all of the first ")) << line;
  EXPECT_EQ(with({"--method", "streaming"}).first["text"].get<std::string>().find("mill"), std::string::npos);
}

TEST_F(RunTest, MemoryBoundsAuto) {
  const auto with = [&](Words more) {
    more.insert(more.begin(), {"run", "-m", default_model(), "-n", "700", "--ignore-eos", "--seed", "1", "--json"});
    const Finished done = command(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  };
  const auto fewer_bits = with({"--cache-memory", "3.5"}),
             halves = with({"--cache-memory", "3.5", "--cache-type", "f16"});
  EXPECT_EQ(fewer_bits["evicted"], 0);
  EXPECT_GT(halves["evicted"], 0);
  for (const auto& run : {fewer_bits, halves}) EXPECT_LE(run["cache_bytes_peak"], 14 << 18);
  const auto bytes = with({"--budget", "1MiB"});
  EXPECT_LE(bytes["cache_bytes_peak"], 1 << 20);
  EXPECT_GT(bytes["cache_bytes_peak"], (1 << 20) * 2 / 3);
  const Finished less = command({"run", "-m", default_model(), "--method", "full", "-n", "700", "--cache-memory", "1"});
  EXPECT_EQ(less.code, 2);
  EXPECT_NE(less.err.find("--cache-memory is 1.0 MiB"), std::string::npos) << less.err;
}

TEST_F(RunTest, APinnedPromptStays) {
  const auto with = [&](Words more) {
    more.insert(more.begin(), {"run", "-m", default_model(), "-p", "note: Mira hid the red key in the mill.", "-n",
                               "200", "--ignore-eos", "--json"});
    const Finished done = command(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  };
  const auto pinned = with({"--pin-prompt", "--method", "h2o:budget=64"});
  const std::string pins = fmt::format("pin=0-{},", pinned["prompt_tokens"].get<int>() - 1);
  EXPECT_NE(pinned["method"].get<std::string>().find(pins), std::string::npos) << pinned["method"];
  EXPECT_EQ(with({"--pin-prompt", "--method", "full"})["evicted"], 0);
  EXPECT_EQ(with({"--method", "h2o:budget=64,pin=prompt"})["method"], pinned["method"]);
  const Finished much =
      command({"run", "-m", default_model(), "-p", "One two three four five six", "--pin-prompt", "--budget", "8"});
  EXPECT_EQ(much.code, 2);
  EXPECT_NE(much.err.find("raise it to at least"), std::string::npos) << much.err;
  const Finished elsewhere =
      command({"info", "-m", default_model(), "--cache", "--method", "h2o:budget=64,pin=prompt"});
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_NE(elsewhere.err.find("where the prompt is known: pin positions here"), std::string::npos) << elsewhere.err;
}

TEST_F(RunTest, ALosslessMethodWritesTheTextOfTheFullCache) {
  const Words plain = {"--temp", "0.8", "--seed", "3", "-n", "150", "--ignore-eos"};
  const auto with = [&](const std::string& method, Words more = {}) {
    more.insert(more.end(), plain.begin(), plain.end());
    more.insert(more.end(), {"--method", method});
    return run(more);
  };
  const Finished full = with("full");
  ASSERT_EQ(full.code, 0) << full.err;
  for (const std::string method :
       {"h2o:budget=48,lossless=true", "streaming:budget=48,positions=original,lossless=true"}) {
    const Finished text = with(method, {"--draft-price", "0.1", "--draft-p-min", "0"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(text.out, full.out) << method;
    EXPECT_NE(text.err.find(" tokens a pass of the full cache; "), std::string::npos) << text.err;
    EXPECT_NE(text.err.find("; drafts by " + method + ": cache "), std::string::npos) << text.err;
    EXPECT_EQ(with(method).out, full.out) << method << ", by measured price";
  }
  const Finished json = with("h2o:budget=48,lossless=true", {"--json", "--draft-price", "0.1", "--draft-p-min", "0"});
  const auto answer = nlohmann::json::parse(json.out);
  EXPECT_GT(answer["drafts"]["accepted"], 0);
  EXPECT_GT(answer["lossless"]["tokens_per_pass"], 1);
  EXPECT_LT(answer["lossless"]["cache_bytes"], answer["cache_bytes"]);
  EXPECT_EQ(answer["evicted"], 0);
  const std::pair<Words, std::string> faults[] = {
      {{"--method", "h2o:budget=48,lossless=true", "--lookup"}, "leave out --lookup"},
      {{"--method", "streaming:lossless=true"}, "use positions=original"},
      {{"--method", "snapkv:budget=48,lossless=true", "--prefill-layerwise"}, "leave one of them out"},
      {{"--method", "h2o:budget=48,lossless=true", "--portable"}, "is for the CPU"}};
  for (const auto& [words, sentence] : faults) {
    const Finished refused = run(words);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_NE(refused.err.find(sentence), std::string::npos) << refused.err;
  }
}

TEST_F(RunTest, DraftsDoNotChangeTheText) {
  for (const std::string method : {"full", "h2o:budget=96,every=8", "h2o:budget=96", "streaming:budget=96"}) {
    const Words plain = {"--method", method, "--temp", "0.8", "--seed", "3", "-n", "300", "--ignore-eos"};
    const Finished without = run(plain);
    ASSERT_EQ(without.code, 0) << without.err;
    for (const Words& drafts :
         {Words{"--lookup"}, Words{"-md", model_, "--draft-p-min", "0.3", "--draft-max", "5", "--draft-price", "0.1"},
          Words{"-md", model_, "--draft-method", "full", "--draft-min", "2", "--draft-price", "0.1"}}) {
      Words all = plain;
      all.insert(all.end(), drafts.begin(), drafts.end());
      const Finished with = run(all);
      EXPECT_EQ(with.code, 0) << with.err;
      EXPECT_EQ(with.out, without.out) << method << " " << drafts.front();
      EXPECT_TRUE(drafts.front() != "-md" || with.err.find("drafts accepted") != std::string::npos) << with.err;
    }
  }
}

TEST_F(RunTest, OneLineOfFiguresOnStandardError) {
  const Finished done = run({"--temp", "0", "-n", "400", "--method", "streaming:budget=64"});
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(done.err.starts_with("palimpsest: 400 tokens, ")) << done.err;
  EXPECT_NE(done.err.find("tokens/s"), std::string::npos);
  const std::string cache = fmt::format("cache {0}.0 KiB (64 tokens, peak {0}.0 KiB), 336 evicted", token_bytes_ / 16);
  EXPECT_NE(done.err.find(cache), std::string::npos) << done.err;
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1);
}

TEST_F(RunTest, JsonIsOneCompleteObject) {
  const Finished done = run({"--temp", "0", "-n", "300", "--method", "streaming:budget=64", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["tokens"], 300);
  EXPECT_EQ(json["evicted"], 300 - 64);
  EXPECT_EQ(json["cache_bytes"], 64 * token_bytes_);
  EXPECT_EQ(json["cache_bytes_peak"], 64 * token_bytes_);
  EXPECT_EQ(json["model"], model_);
  const std::string method = json["method"];  // all of its keys
  EXPECT_TRUE(method.starts_with("streaming:policy=recent,budget=64,split=uniform,sinks=4,recent=0,pin=none,"))
      << method;
  EXPECT_NE(method.find(",cache=on,"), std::string::npos) << method;
  EXPECT_TRUE(method.ends_with(",large=auto")) << "a policy's own options come last: " << method;
  EXPECT_GT(json["text"].get<std::string>().size(), 300u);
  EXPECT_GT(json["ttft_ms"], 0);
  for (const char* key : {"mean", "p50", "p99", "forward"}) EXPECT_GT(json["tpot_ms"][key], 0) << key;
  EXPECT_GE(json["tpot_ms"]["update"], 0);
  EXPECT_EQ(json["evictions"], 300 - 64);
  EXPECT_GT(json["tokens_per_second"], 0);
  EXPECT_GT(json["rss_bytes_peak"], 1 << 20);
  // The same text as without --json.
  EXPECT_EQ(json["text"].get<std::string>() + "\n",
            run({"--temp", "0", "-n", "300", "--method", "streaming:budget=64"}).out);
}

TEST_F(RunTest, ABudgetAboveTheTrainedContextIsSaid) {
  const auto context =
      nlohmann::json::parse(command({"info", "-m", model_, "--json"}).out)["trained_context"].get<int>();
  const Finished more =
      run({"--temp", "0", "-n", "5", "--method", "streaming", "--budget", std::to_string(context + 1)});
  EXPECT_EQ(more.code, 0);
  EXPECT_NE(more.err.find(fmt::format("budget {} exceeds the model's trained context of {}", context + 1, context)),
            std::string::npos)
      << more.err;
  const Finished cap = run({"--temp", "0", "-n", "5", "--method", "streaming:budget=auto", "--json"});
  ASSERT_EQ(cap.code, 0) << cap.err;
  EXPECT_EQ(cap.err.find("exceeds"), std::string::npos);
  EXPECT_NE(nlohmann::json::parse(cap.out)["method"].get<std::string>().find(fmt::format("budget={},", context)),
            std::string::npos);
}

TEST_F(RunTest, TheSameSeedGivesTheSameTextForAnyThreads) {
  const Words words = {"run", "-m", model_, "--seed", "11", "-n", "300", "--budget", "100", "-p", "One day"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    return command(more).out;
  };
  const std::string text = with({"-t", "1"});
  EXPECT_GT(text.size(), 400u);
  EXPECT_EQ(text, with({"-t", "1"}));
  EXPECT_EQ(text, with({"-t", "2"}));
  EXPECT_NE(text, run({"--seed", "12", "-n", "300", "--budget", "100", "-p", "One day"}).out);
}

TEST_F(RunTest, ASavedTextGoesOnAsIfItHadNeverStopped) {
  const std::string file = write_file("text.snap", "");
  const Words common = {"--seed", "5", "--budget", "64", "--ignore-eos", "--repeat-penalty", "1.1"};
  const auto with = [&](Words more) {
    more.insert(more.end(), common.begin(), common.end());
    more.push_back("--json");
    const Finished done = run(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out)["text"].get<std::string>();
  };
  const std::string whole = with({"-p", "One day", "-n", "240"});
  const std::string first = with({"-p", "One day", "-n", "100", "--save", file});
  const std::string second = with({"--restore", file, "-n", "70", "--save", file});
  const std::string third = with({"--restore", file, "-n", "70"});
  EXPECT_EQ(whole, first + second + third);
  EXPECT_NE(with({"--restore", file, "-p", " But", "-n", "20"}), with({"--restore", file, "-n", "20"}));

  const Finished other = run({"--restore", file, "--budget", "65", "-n", "5"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("was saved with --method"), std::string::npos) << other.err;
  EXPECT_EQ(run({"--restore", write_file("bad.snap", "no snapshot at all"), "-n", "5"}).code, 2);
}

TEST_F(RunTest, EditsTheTextOfASnapshot) {
  const std::string file = own_file("edited.snap");
  const auto with = [&](Words more) {
    more.insert(more.end(), {"--temp", "0", "--method", "full", "--ignore-eos", "--json"});
    const Finished done = run(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out)["text"].get<std::string>();
  };
  with({"-p", "One day", "-n", "40", "--save", file});
  const std::string before = with({"--restore", file, "-n", "20"});
  // The removed tokens come back: mode exact is as if nothing had happened.
  const std::string same = own_file("same.snap");
  EXPECT_EQ(
      with({"--restore", file, "--edit", "10:10= night", "--edit-mode", "exact", "--save", same, "-n", "1"}).empty(),
      false);
  for (const char* mode : {"reuse", "exact"})
    EXPECT_EQ(with({"--restore", file, "--edit", "10:10=", "--edit-mode", mode, "-n", "20"}), before) << mode;
  const auto refused = [&](Words more, const std::string& part) {
    more.insert(more.end(), {"--method", "full", "-n", "5"});
    const Finished done = run(more);
    EXPECT_EQ(done.code, 2);
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
    EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  };
  refused({"--restore", file, "--edit", "9:8=x"}, "the range 9:8 is out of order");
  refused({"--restore", file, "--edit", "9:800=x"}, "the range 9:800 is beyond the end of the text");
  refused({"--restore", file, "--edit", "9=x"}, "is not A:B=TEXT");
  refused({"--restore", file, "--edit", "9:10=x", "--edit-mode", "both"}, "the mode of an edit");
  refused({"-p", "One day", "--edit", "9:10=x"}, "--edit without --restore");
}

TEST_F(RunTest, ThePromptComesFromAFlagAFileOrStandardInput) {
  const std::string prompt = "Lily and Tom went to the park. ";
  const Words words = {"--temp", "0", "-n", "40"};
  const auto with = [&](Words more, const std::string& input = {}) {
    more.insert(more.end(), words.begin(), words.end());
    const Finished done = run(more, input);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  };
  const std::string text = with({"-p", prompt});
  EXPECT_NE(text, with({}));
  EXPECT_EQ(text, with({"-f", write_file("prompt.txt", prompt)}));
  EXPECT_EQ(text, with({}, prompt));
  EXPECT_EQ(text, with({"-f", "-"}, prompt));
}

// With f32 weights: products with quantised weights round the activations, which may decide between two near-equal
// logits.
TEST_F(RunTest, APromptLongerThanTheCacheReadsTheSameInAnyChunks) {
  model_ = in_f32(model_);
  std::string prompt;
  for (int i = 0; i < 60; ++i) prompt += "Once there was a dog. It was number " + std::to_string(i) + ". ";
  const std::string file = write_file("long.txt", prompt);
  const auto with = [&](const std::string& chunk) {
    return run({"-f", file, "--temp", "0", "-n", "60", "--method", "streaming:budget=48", "--cache-type", "f32",
                "--prefill-chunk", chunk})
        .out;
  };
  const std::string text = with("512");
  EXPECT_GT(text.size(), 60u);
  EXPECT_EQ(text, with("1"));
  EXPECT_EQ(text, with("37"));
}

TEST_F(RunTest, EndsBeforeAStopString) {
  const std::string text = run({"--temp", "0", "-n", "150"}).out;
  ASSERT_GT(text.size(), 300u);
  const std::string stop = text.substr(200, 8);
  const Finished done = run({"--temp", "0", "-n", "-1", "--stop", stop, "--stop", "zebra"});
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, text.substr(0, text.find(stop)) + "\n");
}

TEST_F(RunTest, AGrammarHolds) {
  const Finished done = run({"--seed", "4", "-n", "50", "--grammar", R"(root ::= ("yes" | "no") ".")"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(done.out == "yes.\n" || done.out == "no.\n") << done.out;
}

TEST_F(RunTest, NoTokensAreAFairWish) {
  const Finished done = run({"-n", "0", "-p", "Hello"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "");
}

TEST_F(RunTest, CtrlCEndsAnEndlessTextWell) {
  Subprocess process(command_path(), on({"run", "-n", "-1", "--ignore-eos", "--method", "streaming:budget=64"}));
  process.close_input();
  ASSERT_TRUE(process.wait_for_output(3000));
  process.signal(SIGINT);
  const Finished done = process.wait();
  EXPECT_EQ(done.code, 130);
  EXPECT_EQ(done.out.back(), '\n');
  EXPECT_NE(done.err.find(" evicted by streaming:budget=64; 4 sinks protected\n"), std::string::npos) << done.err;
}

TEST_F(RunTest, CtrlCUnderJsonStillGivesTheObject) {
  Subprocess process(command_path(), on({"run", "-n", "-1", "--ignore-eos", "--json"}));
  process.close_input();
  process.wait_until_caught(SIGINT);
  process.signal(SIGINT);
  const Finished done = process.wait();
  EXPECT_EQ(done.code, 130) << done.err;
  EXPECT_EQ(nlohmann::json::parse(done.out)["stop"], "cancelled");
}

TEST_F(RunTest, ShowsItsMemory) {
  const Words words = {"-p",       "Once there was a dog", "-n", "60", "--seed", "1", "--ignore-eos",
                       "--method", "streaming:budget=24"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run(more);
  };
  const std::string text = with({}).out;
  const Finished shown = with({"--show-memory"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, text);
  EXPECT_NE(shown.err.find("[-"), std::string::npos) << shown.err;  // not a terminal: marks instead of ink
  EXPECT_NE(shown.err.find(" forgotten; keys and values "), std::string::npos) << shown.err;
  EXPECT_EQ(shown.err.find('\x1B'), std::string::npos);

  const std::string page = write_file("memory.html", "").string();
  const Finished drawn = with({"--show-memory", page});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  const std::string html = file_content(page);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_NE(html.find("class=\"gone\""), std::string::npos);
  expect_refused(on({"run", "--show-memory", "x.txt"}), "ends with .html");
  expect_refused(on({"run", "--method", "window-recompute", "--show-memory"}), "no cache to show");
}

TEST_F(RunTest, HostileTextIsShownAsText) {
  const std::string page = write_file("hostile.html", "").string();
  const std::string hostile = "<script>x</script> \x1B[31m \xE2\x80\xAE \"&";
  const Finished done = run({"-p", hostile, "-n", "1", "--method", "full", "--show-memory", page});
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string html = file_content(page);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find('\x1B'), std::string::npos);
  EXPECT_EQ(html.find("\xE2\x80\xAE"), std::string::npos);
  const Finished plain = run({"-p", hostile, "-n", "1", "--method", "full", "--show-memory"});
  EXPECT_EQ(plain.err.find('\x1B'), std::string::npos);
}

TEST_F(RunTest, AReaderThatGoesAwayEndsItQuietly) {
  const Finished done = run_program(
      "/bin/sh", {"-c", command_path() + " run -n -1 --ignore-eos -t 1 -m " + model_ + " < /dev/null | head -c 100"});
  EXPECT_EQ(done.out.size(), 100u);
  EXPECT_EQ(done.err.find("error"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace palimpsest::testing
