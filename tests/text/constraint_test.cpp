// Grammars from a trigger on, after the end of a prompt, and with control tokens.
#include "palimpsest/text/grammar/constraint.h"

#include <gtest/gtest.h>

#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

class ConstraintTest : public ::testing::Test {
 protected:
  void SetUp() override { words_ = Vocabulary::load(default_model()); }
  // Whether each token of the text is allowed, one after the other.
  bool reads(GrammarConstraint& constraint, const std::string& text) const {
    for (const TokenId token : words_->tokenize(text, false, false)) {
      if (words_->piece(token).empty()) continue;
      if (!constraint.allows(token)) return false;
      std::vector<std::uint8_t> allowed(static_cast<std::size_t>(words_->size()));
      constraint.allowed(allowed);
      EXPECT_EQ(allowed[static_cast<std::size_t>(token)], 1);
      constraint.accept(token);
    }
    return true;
  }
  bool may_end(GrammarConstraint& constraint) const {
    std::vector<std::uint8_t> allowed(static_cast<std::size_t>(words_->size()));
    constraint.allowed(allowed);
    EXPECT_EQ(allowed[static_cast<std::size_t>(words_->eos())] == 1, constraint.allows(words_->eos()));
    return constraint.allows(words_->eos());
  }
  std::shared_ptr<Vocabulary> words_;
};

TEST_F(ConstraintTest, BeginsAfterThePromptsEnd) {
  SamplerOptions options{.grammar = R"(root ::= "Answer: " [0-9]+)"};
  options.grammar_prefix = "Answer: ";
  GrammarConstraint constraint(options, *words_);
  EXPECT_FALSE(may_end(constraint));
  EXPECT_TRUE(reads(constraint, "42"));
  EXPECT_TRUE(may_end(constraint));
  options.grammar_prefix = "Question: ";
  EXPECT_NE(error_of([&] { GrammarConstraint(options, *words_); }).find("prompt"), std::string::npos);
}

TEST_F(ConstraintTest, TextIsFreeUntilATrigger) {
  SamplerOptions options{.grammar = R"(root ::= "<call>" [0-9]+ "</call>")"};
  options.grammar_triggers = {"<call>", "<other>"};
  GrammarConstraint constraint(options, *words_);
  EXPECT_TRUE(reads(constraint, "Once upon a time, 1 < 2, <c <call and so on. <call>"));
  EXPECT_FALSE(may_end(constraint));
  EXPECT_FALSE(reads(constraint, "x"));
  EXPECT_TRUE(reads(constraint, "42</call>"));
  EXPECT_TRUE(may_end(constraint));
  EXPECT_FALSE(reads(constraint, "x"));
}

// A token may end after the trigger: what follows in it must match, or nothing is constrained.
TEST_F(ConstraintTest, ATriggerThatTheGrammarRefusesIsText) {
  SamplerOptions options{.grammar = R"(root ::= "<call>" [0-9]+)"};
  options.grammar_triggers = {"<other>"};
  GrammarConstraint constraint(options, *words_);
  EXPECT_TRUE(reads(constraint, "<other> and free"));
  EXPECT_TRUE(may_end(constraint));
}

TEST_F(ConstraintTest, TheStateIsRestoredBeforeAndAfterTheTrigger) {
  SamplerOptions options{.grammar = R"(root ::= "<call>" [0-9]+ "</call>")"};
  options.grammar_triggers = {"<call>"};
  const std::string text = "So <call>12</call>";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    GrammarConstraint first(options, *words_), second(options, *words_);
    ASSERT_TRUE(reads(first, text.substr(0, cut)));
    second.restore(first.save());
    EXPECT_EQ(first.save(), second.save());
    EXPECT_TRUE(reads(second, text.substr(cut))) << cut;
    EXPECT_FALSE(reads(second, "x")) << cut;
    EXPECT_TRUE(may_end(second)) << cut;
  }
  SamplerOptions plain{.grammar = R"(root ::= [0-9]+)"};
  GrammarConstraint other(plain, *words_);
  const auto waiting = GrammarConstraint(options, *words_).save();
  EXPECT_FALSE(error_of([&] { other.restore(waiting); }).empty());
}

TEST_F(ConstraintTest, ControlTokensHaveATextIfWanted) {
  TokenId control = 0;
  while (!words_->is_control(control) || words_->is_end(control)) ++control;
  const std::string text = words_->piece(control, true);
  ASSERT_FALSE(text.empty());
  SamplerOptions options{.grammar = "root ::= \"" + text + "\" [0-9]+"};
  EXPECT_FALSE(GrammarConstraint(options, *words_).allows(control));
  options.grammar_tokens = {control};
  GrammarConstraint constraint(options, *words_);
  EXPECT_TRUE(constraint.allows(control));
  constraint.accept(control);
  EXPECT_TRUE(reads(constraint, "7"));
}

}  // namespace
}  // namespace palimpsest::testing
