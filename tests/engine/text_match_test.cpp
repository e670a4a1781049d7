#include "palimpsest/engine/scheduler/text_match.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

using Tokens = std::vector<TokenId>;

const Vocabulary& words() {
  static const auto vocabulary = Vocabulary::load(default_model());
  return *vocabulary;
}

std::string text_of(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text += words().piece(token, true);
  return text;
}

// As a model might: other tokens than the tokenizer's, of the same bytes.
Tokens split_anyhow(const std::string& text, std::mt19937& random) {
  Tokens out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = 1 + random() % 6;
    for (const TokenId token : words().tokenize(text.substr(at, length), false, false)) out.push_back(token);
    at += length;
  }
  return out;
}

TEST(TextMatch, ContinuesATextThatWasSplitDifferently) {
  const std::string text =
      "Once upon a time, there was a little girl.\nShe said: \"I like the sun, it's warm!\" 123 é 猫.";
  std::mt19937 random(1);
  int split = 0, whole = 0;
  for (int i = 0; i < 500; ++i) {
    const Tokens read = split_anyhow(text.substr(0, 1 + random() % text.size()), random);
    const std::string known = text_of(read);
    if (!text.starts_with(known)) continue;  // a space was added, or a character was cut
    const Tokens prompt = words().tokenize(text, false, false);
    if (text_of(prompt) != text) GTEST_FAIL() << "the vocabulary adds a space";
    const auto next = continuation(read, prompt, &words());
    if (known.size() == text.size()) {
      EXPECT_TRUE(next.has_value() && next->rest.empty());
      continue;
    }
    ASSERT_TRUE(next.has_value()) << known;
    EXPECT_EQ(known + text_of(next->rest), text);
    EXPECT_TRUE(known.starts_with(text_of(std::span(prompt).first(next->matched))));
    (next->rest.size() > prompt.size() - next->matched ? split : whole) += 1;
    EXPECT_EQ(continuation(read, prompt, nullptr).has_value(),
              std::ranges::equal(read, std::span(prompt).first(std::min(read.size(), prompt.size()))));
    Tokens other = read;
    other.back() = words().tokenize("#", false, false).back();
    EXPECT_EQ(continuation(other, prompt, &words()), std::nullopt);
  }
  EXPECT_GT(split + whole, 200);
  EXPECT_GT(whole, 50);
}

TEST(TextMatch, ControlTokensEqualThemselvesOnly) {
  const TokenId end = words().eos();
  ASSERT_GE(end, 0);
  ASSERT_TRUE(words().is_control(end));
  const std::string name = words().piece(end, true);
  ASSERT_FALSE(name.empty());
  const Tokens hello = words().tokenize("Hello", false, false), spelled = words().tokenize(name, false, false);
  const auto joined = [&](std::initializer_list<Tokens> parts) {
    Tokens out;
    for (const Tokens& part : parts) out.insert(out.end(), part.begin(), part.end());
    return out;
  };
  std::mt19937 random(2);
  const Tokens read = joined({split_anyhow("Hello", random), {end}});
  const auto next = continuation(read, joined({hello, {end}, hello}), &words());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->rest, hello);
  EXPECT_EQ(next->matched, hello.size() + 1);
  EXPECT_EQ(continuation(read, joined({hello, spelled, hello}), &words()), std::nullopt);
  EXPECT_EQ(continuation(joined({hello, spelled}), joined({hello, {end}, hello}), &words()), std::nullopt);
}

TEST(TextMatch, AtLeastOneTokenIsLeft) {
  const Tokens tokens = {5, 6, 7};
  EXPECT_EQ(continuation(tokens, tokens, &words()), (Continuation{.matched = tokens.size(), .rest = {}}));
  EXPECT_EQ(continuation(tokens, std::span(tokens).first(2), &words()), std::nullopt);
  EXPECT_EQ(continuation({}, tokens, nullptr)->rest, tokens);
  EXPECT_EQ(continuation(std::span(tokens).first(2), tokens, nullptr)->matched, 2u);
}

}  // namespace
}  // namespace palimpsest::testing
