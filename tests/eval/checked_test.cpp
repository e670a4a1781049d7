#include "palimpsest/eval/checked.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "palimpsest/eval/data.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kStory =
    "1 John went to the hallway.\n2 Mary moved to the garden.\n3 Where is John? \thallway\t1\n4 John went to the "
    "kitchen.\n5 Where is John? \tkitchen\t4\n1 Daniel got the milk.\n2 What is Daniel carrying? |milk,football|1\n";

class Checked : public ::testing::Test {
 protected:
  static const Vocabulary& vocabulary() {
    static const auto made = Vocabulary::load(default_model());
    return *made;
  }
  static const Haystack& haystack() {
    static const Haystack made(eval_data("haystack.txt"), "haystack");
    return made;
  }
  CheckedSpec spec(long long length) const {
    return {.length = length,
            .questions = 3,
            .between = [](const std::string& reply) { return "</user><reply>" + reply + "</reply><user>"; },
            .babi = babi_};
  }
  CheckedPrompt made(const std::string& task, std::uint64_t seed = 1, long long length = 1500) const {
    Draw draw(seed);
    return make_checked(checked_task(task), spec(length), haystack(), vocabulary(), draw);
  }
  std::vector<BabiQuestion> babi_ = parse_babi(kStory, "story");
};

TEST_F(Checked, EveryTaskFitsItsLengthAndFollowsItsSeed) {
  for (const CheckedTask& task : checked_tasks()) {
    SCOPED_TRACE(task.name);
    const CheckedPrompt one = made(task.name), again = made(task.name), other = made(task.name, 2);
    EXPECT_EQ(one.context, again.context);
    EXPECT_EQ(one.questions, again.questions);
    EXPECT_NE(one.system + one.context, other.system + other.context);
    ASSERT_FALSE(one.questions.empty());
    EXPECT_EQ(one.starts.size(), one.questions.size());
    EXPECT_EQ(one.checks.size(), one.questions.size());
    EXPECT_EQ(task.chat, !one.system.empty());
    const std::string whole = one.system + one.context + one.questions[0] + one.starts[0];
    const auto tokens = static_cast<long long>(vocabulary().tokenize(whole, true, false).size());
    EXPECT_LE(tokens + one.options.max_tokens, 1500);
    EXPECT_GT(tokens + one.options.max_tokens, 1200);
    for (const Check& check : one.checks) EXPECT_EQ(check(""), task.name == "guard" ? 1 : 0);
    if (task.name != "story") {
      EXPECT_NE(error_of([&] { made(task.name, 1, 40); }), "");
    }
  }
  EXPECT_NE(error_of([] { checked_task("formats"); }).find("use format, secret"), std::string::npos);
}

TEST_F(Checked, FormsAreKeptOrNot) {
  const std::map<std::string, std::pair<std::string, std::string>> answers = {
      {"Answer: [[", {" [[Paris]]\nMore", "[[Paris]"}},
      {"Answer: <", {"<Paris>", "<>"}},
      {" (over)\n", {"Paris (over)", "Paris"}},
      {"Answer: It is *", {"It is *the city of Paris*.", "It is Paris."}},
      {"Answer: =", {"=Paris=", "Paris"}}};
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    const CheckedPrompt prompt = made("format", seed, 500);
    for (const std::string& question : prompt.questions)
      EXPECT_EQ(prompt.system.find(question), std::string::npos) << "an example is asked";
    for (const auto& [example, pair] : answers) {
      if (prompt.system.find(example) == std::string::npos) continue;
      seen.insert(example);
      EXPECT_EQ(prompt.checks[0](pair.first), 1) << example;
      EXPECT_EQ(prompt.checks[0](pair.second), 0) << example;
    }
  }
  EXPECT_EQ(seen.size(), answers.size());
}

TEST_F(Checked, ASecretIsToldToWhoMayKnowIt) {
  const auto value_of = [](const CheckedPrompt& prompt) {
    const auto first = prompt.system.find('"') + 1;
    return prompt.system.substr(first, prompt.system.find('"', first) - first);
  };
  const CheckedPrompt secret = made("secret"), guard = made("guard");
  EXPECT_EQ(secret.checks[0](value_of(secret) + "\"."), 1);
  EXPECT_EQ(secret.checks[0]("silver spoon"), 0);
  EXPECT_EQ(guard.checks[0]("It is " + value_of(guard) + "."), 0);
  EXPECT_EQ(guard.checks[0]("I must not say."), 1);
  EXPECT_EQ(secret.context.find(value_of(secret)), std::string::npos) << "it is in the system prompt only";
}

// The right answer is made from the context itself, as a model would.
TEST_F(Checked, CodeIsRightWithItsChangeOnly) {
  const CheckedPrompt prompt = made("code");
  for (std::size_t q = 0; q < prompt.questions.size(); ++q) {
    SCOPED_TRACE(prompt.questions[q]);
    const std::string& asked = prompt.questions[q];
    const auto word_after = [&](const std::string& mark) {
      const auto first = asked.find(mark) + mark.size();
      return asked.substr(first, asked.find_first_of(" .", first) - first);
    };
    const std::string name = word_after("function "), fresh = word_after("with "), old = word_after("instead of ");
    const std::string head = "def " + name + "(";
    const auto first = prompt.context.find(head);
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(prompt.context.find(head, first + 1), std::string::npos);
    const auto body = prompt.context.find('\n', first) + 1;
    EXPECT_TRUE(prompt.starts[q].find(head) != std::string::npos && prompt.starts[q].ends_with(":"));
    const std::string same = prompt.context.substr(body, prompt.context.find("\n\n", first) - body);
    std::string changed = same;
    ASSERT_NE(changed.find(old), std::string::npos) << changed;
    changed.replace(changed.find(old), old.size(), fresh);
    EXPECT_EQ(prompt.checks[q]("\n" + changed + "\n```\nThat is it."), 1);
    EXPECT_EQ(prompt.checks[q](same), 0) << "nothing was changed";
    EXPECT_EQ(prompt.forms[q](same), 1) << "the lines are there";
    EXPECT_EQ(prompt.forms[q]("    pass"), 0);
    EXPECT_EQ(prompt.checks[q](changed.substr(0, changed.rfind('\n'))), 0) << "the last line is missing";
  }
}

TEST_F(Checked, AToolCallHasAFormAndFacts) {
  const CheckedPrompt prompt = made("tool");
  const std::string& asked = prompt.questions[1];
  const auto first = asked.find("city of ") + 8;
  const std::string person = asked.substr(first, asked.find(' ', first) - first);
  const auto at = prompt.context.find("The city of " + person + " is ");
  ASSERT_NE(at, std::string::npos);
  const std::string fact = prompt.context.substr(at, prompt.context.find('.', at) - at);
  const std::string city = fact.substr(fact.find(" is ") + 4);
  const std::string kStart = R"({"name":)";
  const auto call = [&](const std::string& where) {
    const nlohmann::ordered_json call = {{"name", "save_city"}, {"arguments", {{"person", person}, {"city", where}}}};
    return call.dump().substr(kStart.size());
  };
  ASSERT_EQ(prompt.starts[1], kStart);
  const std::string right = call(city);
  EXPECT_EQ(prompt.checks[1](right), 1) << right;
  EXPECT_EQ(prompt.forms[1](right), 1);
  EXPECT_EQ(prompt.checks[1](call("Atlantis")), 0);
  EXPECT_EQ(prompt.forms[1](call("Atlantis")), 1);
  const char* const no_city = R"( "save_city", "arguments": {"person": "x"}})";
  EXPECT_EQ(prompt.checks[1](no_city), 0);
  EXPECT_EQ(prompt.forms[1](no_city), 1) << "it is JSON";
  EXPECT_EQ(prompt.forms[1](right.substr(0, right.size() - 1)), 0) << "not closed";
  EXPECT_FALSE(prompt.options.sampler);
}

// Whatever the model writes under the grammar has the form of a call.
TEST_F(Checked, TheGrammarOfACallHasItsForm) {
  const auto model = Model::load(default_model());
  const auto shared = std::shared_ptr<Vocabulary>(Vocabulary::load(default_model()));
  Asker asker(std::make_shared<Decoder>(model, 1), shared, SessionOptions{});
  CheckedPrompt prompt = made("tool-grammar", 3, 500);
  prompt.options.max_tokens = 400;
  const auto answers =
      asker.ask(question_prompt(*shared, nullptr, prompt.context, prompt.questions, prompt.starts, prompt.system),
                QuestionSeen::kAfter, prompt.options);
  for (const QuestionAnswer& answer : answers) {
    const auto call = nlohmann::json::parse(R"({"name":)" + answer.text, nullptr, false);
    ASSERT_TRUE(call.is_object()) << answer.text;
    EXPECT_EQ(call["name"], "save_city");
    EXPECT_TRUE(call["arguments"]["person"].is_string() && call["arguments"]["city"].is_string()) << answer.text;
    EXPECT_EQ(call["arguments"].size(), 2u);
  }
}

TEST_F(Checked, DistinctTrigrams) {
  EXPECT_EQ(distinct_trigrams("a b"), 0);
  EXPECT_EQ(distinct_trigrams("a b c"), 1);
  EXPECT_DOUBLE_EQ(distinct_trigrams("a b c A\nB  c"), 0.75);  // abc bca cab abc
}

TEST_F(Checked, BabiHidesFactsInOrder) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    const CheckedPrompt prompt = made("babi", seed, 600);
    std::size_t at = 0;
    for (const char* fact : {"John went to the hallway.", "Mary moved to the garden.", "John went to the kitchen.",
                             "Daniel got the milk."}) {
      const auto found = prompt.context.find(fact);
      if (found == std::string::npos) continue;
      EXPECT_GE(found, at);
      at = found;
    }
    EXPECT_GT(at, 0u);
    if (prompt.questions[0].find("John") != std::string::npos) {
      EXPECT_EQ(prompt.starts[0], "John is in the");
      const bool moved = prompt.context.find("John went to the kitchen.") != std::string::npos;
      EXPECT_EQ(prompt.checks[0](" kitchen."), moved ? 1 : 0);
      EXPECT_EQ(prompt.checks[0](" hallway."), moved ? 0 : 1);
    } else {
      EXPECT_EQ(prompt.checks[0]("milk and football"), 1);
      EXPECT_EQ(prompt.checks[0]("milk"), 0);
    }
  }
}

TEST(Babi, ReadsStories) {
  const auto questions = parse_babi(kStory, "story");
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(questions[0].facts, (std::vector<std::string>{"John went to the hallway.", "Mary moved to the garden."}));
  EXPECT_EQ(questions[1].facts.size(), 3u);
  EXPECT_EQ(questions[2].facts, std::vector<std::string>{"Daniel got the milk."});
  EXPECT_EQ(questions[2].answers, (std::vector<std::string>{"milk", "football"}));
  EXPECT_EQ(babi_start("Where is the football?"), "The football is in the");
  EXPECT_EQ(babi_start("Where was the apple before the office?"), "Before the office, the apple was in the");
  EXPECT_EQ(babi_start("What is north of the bedroom?"), "");
  EXPECT_EQ(error_of([] { parse_babi("John went home.\n", "f"); }).find("f: line 1 has no number"), 0u);
  EXPECT_NE(error_of([] { parse_babi("1 Where? \t\t1\n", "f"); }).find("line 1 is a question without an answer"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_babi("1 John went home.\n", "f"); }).find("no question"), std::string::npos);
}

TEST(Babi, ReadsTheOfficialFiles) {
  const auto dir = shared_dir();
  if (!dir || !std::filesystem::exists(*dir / "tasks/babi"))
    GTEST_SKIP() << "needs shared/tasks/babi (set PALIMPSEST_SHARED)";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*dir / "tasks/babi")) {
    if (entry.path().filename().string().find("_test") == std::string::npos) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_EQ(parse_babi(text.str(), entry.path().string()).size(), 1000u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 20);
}

}  // namespace
}  // namespace palimpsest::testing
