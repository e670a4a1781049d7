#include "palimpsest/eval/needle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "palimpsest/eval/data.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

const Vocabulary& vocabulary() {
  static const auto made = Vocabulary::load(default_model());
  return *made;
}

const Haystack& haystack() {
  static const Haystack made(eval_data("haystack.txt"), "haystack");
  return made;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Needle, EveryKindFitsItsLengthAndHoldsItsAnswers) {
  for (const char* file : {"facts.json", "needles.json", "ruler.json"})
    for (const NeedleKind& kind : parse_needle_kinds(eval_data(file), file))
      for (const double depth : {0.0, 0.3, 1.0}) {
        SCOPED_TRACE(kind.name);
        Draw draw(7), again(7);
        const NeedleSpec spec{1200, depth, 3};
        const NeedlePrompt made = make_needle(kind, spec, haystack(), vocabulary(), draw);
        EXPECT_LE(made.tokens + kind.tokens, spec.length);
        EXPECT_GT(made.tokens + kind.tokens, spec.length - 250);  // another paragraph would not fit
        ASSERT_EQ(made.questions.size(), made.answers.size());
        EXPECT_EQ(made.questions.size(),
                  static_cast<std::size_t>(kind.ask_all ? std::min(3, 1 + kind.spread) : 1 + std::min(kind.same, 2)));
        EXPECT_EQ(made.starts.size(), made.questions.size());
        for (const std::string& answer : made.answers) EXPECT_TRUE(contains_word(made.context, answer)) << answer;
        EXPECT_EQ((made.context + made.questions.front()).find('{'), std::string::npos);
        EXPECT_EQ(make_needle(kind, spec, haystack(), vocabulary(), again).context, made.context);
      }
}

TEST(Needle, StandsAtItsDepth) {
  const auto kinds = parse_needle_kinds(eval_data("needles.json"), "needles.json");
  for (const NeedleKind& kind : kinds) {
    if (kind.name != "passkey") continue;
    for (const double depth : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      Draw draw(3);
      const NeedlePrompt made = make_needle(kind, {2000, depth, 1}, haystack(), vocabulary(), draw);
      const double bytes = static_cast<double>(made.context.size() - kind.intro.size());
      const double at = static_cast<double>(made.context.find("The pass key") - kind.intro.size());
      EXPECT_NEAR(at / bytes, depth, 0.03);
      EXPECT_EQ(times(made.context, made.answers[0]), 2u);
    }
  }
}

TEST(Needle, AskedForAllOfThemStandAtEqualDistances) {
  for (const NeedleKind& kind : parse_needle_kinds(eval_data("needles.json"), "needles.json")) {
    if (kind.name != "word") continue;
    Draw draw(3);
    const NeedlePrompt made = make_needle(kind, {2000, 0.2, 4}, haystack(), vocabulary(), draw);
    ASSERT_EQ(made.answers.size(), 4u);
    std::set<std::string> starts;
    for (std::size_t i = 0; i < 4; ++i) {
      const double at = static_cast<double>(made.context.find(made.starts[i] + " " + made.answers[i])) /
                        static_cast<double>(made.context.size());
      EXPECT_NEAR(at, std::fmod(0.2 + 0.25 * static_cast<double>(i), 1.0), 0.04);
      starts.insert(made.starts[i]);
    }
    EXPECT_EQ(starts.size(), 4u);
  }
}

TEST(Needle, ACorrectionFollowsItsNeedleWithAnotherValue) {
  const auto kinds = parse_needle_kinds(eval_data("needles.json"), "needles.json");
  for (int seed = 0; seed < 20; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const NeedlePrompt made =
        make_needle(needle_kind(kinds, "corrected"), {1200, 0.1, 2}, haystack(), vocabulary(), draw);
    ASSERT_EQ(made.answers.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string& question = made.questions[i];
      const auto from = question.find("pet of ") + 7;
      const std::string name = question.substr(from, question.find(" now") - from);
      const auto old = made.context.find("The pet of " + name + " is a "),
                 now = made.context.find("now the pet of " + name + " is a ");
      ASSERT_NE(old, std::string::npos) << question;
      ASSERT_NE(now, std::string::npos) << question;
      EXPECT_LT(old, now);
      EXPECT_EQ(made.context.find(made.answers[i], now), now + ("now the pet of " + name + " is a ").size());
      EXPECT_NE(made.context.substr(old + ("The pet of " + name + " is a ").size(), made.answers[i].size()),
                made.answers[i]);
    }
  }
}

TEST(Needle, KeysDiffer) {
  const auto kinds = parse_needle_kinds(eval_data("needles.json"), "needles.json");
  for (const NeedleKind& kind : kinds) {
    if (kind.name != "multi-key" && kind.name != "lines") continue;
    Draw draw(5);
    const NeedlePrompt made = make_needle(kind, {1500, 0.5, 1}, haystack(), vocabulary(), draw);
    const std::string asked = made.questions[0];
    std::set<std::string> keys;
    std::size_t count = 0;
    const std::string before = kind.fill ? "line " : "numbers for ", after = kind.fill ? ": REG" : " is: ";
    for (auto at = made.context.find(before); at != std::string::npos; at = made.context.find(before, at + 1)) {
      const auto from = at + before.size();
      const auto end = made.context.find(after, from);
      if (end == std::string::npos || end - from > 40) continue;
      ++count;
      keys.insert(made.context.substr(from, end - from));
    }
    EXPECT_EQ(keys.size(), count);
    EXPECT_GE(count, kind.fill ? 20u : 8u);
    EXPECT_EQ(times(made.context, made.answers[0]), 1u);
  }
}

TEST(Needle, RefusesWhatCannotBe) {
  const auto refused = [](const std::string& json, const std::string& part) {
    EXPECT_NE(error_of([&] { parse_needle_kinds(json, "mine.json"); }).find(part), std::string::npos) << json;
  };
  refused("{", "mine.json");
  refused("[1]", "not an object");
  refused(R"({"a": {}})", "variants");
  refused(R"({"a": {"variants": []}})", "no variants");
  refused(R"({"a": {"unit": "x", "variants": [{"needle": "", "question": "", "words": {}}]}})", "{text}");
  refused(R"({"a": {"variants": [{"needle": "k", "question": "q", "words": {}}]}})", "{value}");
  refused(R"({"a": {"variants": [{"needle": "{value}", "question": "q", "words": {"value": "5"}}]}})", "range");
  refused(R"({"a": {"variants": [{"needle": "{value}", "question": "q", "words": {"value": []}}]}})", "empty");
  const auto kinds = parse_needle_kinds(
      R"({"a": {"spread": 3, "variants": [{"needle": "{k} {value}", "question": "q", "words": {"k": ["x"], "value": "1-9"}}]}})",
      "mine.json");
  Draw draw(1);
  EXPECT_NE(error_of([&] {
              make_needle(kinds[0], {500, 0, 1}, haystack(), vocabulary(), draw);
            }).find("too short"),
            std::string::npos);
  EXPECT_NE(error_of([] { Haystack("Too short. A text.", "mine.txt"); }).find("mine.txt"), std::string::npos);
}

TEST(Needle, AValueIsAWordOfItsOwn) {
  EXPECT_TRUE(contains_word(" The number is 512.", "512"));
  EXPECT_TRUE(contains_word("512", "512"));
  EXPECT_FALSE(contains_word("5123", "512"));
  EXPECT_FALSE(contains_word("x512", "512"));
  EXPECT_TRUE(contains_word("5123 or 512", "512"));
  EXPECT_FALSE(contains_word("", "512"));
}

TEST(Haystack, SentencesParagraphsWords) {
  const Haystack h("One two. \"Three four!\" he\nsaid. Mr.X came. A? B! C. D. E. F.\n\n\nNext words; here. End", "t");
  EXPECT_EQ(h.paragraphs().size(), 2u);
  EXPECT_EQ(h.sentences()[1], "\"Three four!\"");
  EXPECT_EQ(h.sentences()[2], "he said.");
  EXPECT_EQ(h.sentences()[3], "Mr.X came.");
  EXPECT_EQ(h.sentences().back(), "End");
  EXPECT_EQ(h.words(), (std::vector<std::string>{"four", "said", "came", "words", "here"}));
}

}  // namespace
}  // namespace palimpsest::testing
