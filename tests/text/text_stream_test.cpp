#include "palimpsest/text/text_stream.h"

#include <gtest/gtest.h>

#include "palimpsest/core/error.h"
#include "tests/support/shared_dir.h"
#include "tests/text/spell.h"

namespace palimpsest::testing {
namespace {

std::string streamed(const Vocabulary& words, const std::vector<TokenId>& tokens, TextStream::Options options) {
  TextStream stream(words, std::move(options));
  std::string out;
  for (const TokenId token : tokens) {
    out += stream.put(token);
    if (stream.stopped()) break;
  }
  return out + stream.finish();
}

TEST(TextStream, GivesTheTextUpToAStopString) {
  const auto words = Vocabulary::load(default_model());
  const std::string text = "Once upon a time, there was a dog.";
  const auto tokens = spell(*words, text);
  EXPECT_EQ(streamed(*words, tokens, {}), text);
  EXPECT_EQ(streamed(*words, tokens, {.stop = {", there"}}), "Once upon a time");
  EXPECT_EQ(streamed(*words, tokens, {.stop = {"dog. And"}}), text);
  EXPECT_THROW(TextStream(*words, {.stop = {""}}), Error);
}

TEST(TextStream, HoldsPartsOfCharactersBack) {
  const auto words = Vocabulary::load(default_model());
  std::vector<TokenId> tokens;
  for (const char byte : std::string("a\xE2\x82\xAC.")) {  // a, the euro sign, a dot
    const auto one = spell(*words, std::string(1, byte));
    ASSERT_EQ(one.size(), 1u);
    tokens.push_back(one.front());
  }
  TextStream stream(*words);
  EXPECT_EQ(stream.put(tokens[0]), "a");
  EXPECT_EQ(stream.put(tokens[1]), "");
  EXPECT_EQ(stream.put(tokens[2]), "");
  EXPECT_EQ(stream.bytes(), "\x82");
  EXPECT_EQ(stream.put(tokens[3]), "\xE2\x82\xAC");
  EXPECT_EQ(stream.begin(), 1);
  EXPECT_EQ(stream.put(tokens[4]), ".");
  EXPECT_EQ(stream.begin(), 2);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(streamed(*words, {tokens[0], tokens[1]}, {}), "a" + std::string(kReplacement));
}

TEST(TextStream, ABeginningHasNoSpace) {
  const auto words = Vocabulary::load(default_model());
  const auto tokens = words->tokenize("Once", false, false);
  EXPECT_EQ(streamed(*words, tokens, {.begins_text = true}), "Once");
  EXPECT_EQ(streamed(*words, tokens, {}), "Once");
  const std::vector<TokenId> bos = {words->bos()};
  EXPECT_TRUE(only_control_tokens(*words, bos));
  EXPECT_FALSE(only_control_tokens(*words, tokens));
  EXPECT_FALSE(only_control_tokens(*words, std::vector<TokenId>{words->size()}));
}

TEST(TextStream, ABeginningHasNoSpaceThatTheVocabularyAdds) {
  const auto path = stories260k();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  const auto words = Vocabulary::load(*path);
  const auto tokens = words->tokenize("Once", false, false);
  EXPECT_EQ(streamed(*words, tokens, {.begins_text = true}), "Once");
  EXPECT_EQ(streamed(*words, tokens, {}), " Once");
}

}  // namespace
}  // namespace palimpsest::testing
