// Regular expressions of JSON Schema: as std::regex (ECMAScript) where it has them, and by examples.
#include "palimpsest/text/schema/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

namespace palimpsest::testing {
namespace {

bool regex_matches(const char* pattern, const std::string& text) {
  schema::Work work(20'000'000);
  return schema::compile_regex(pattern, work).matches(text);
}

TEST(Regex, MatchesWhatStdRegexMatches) {
  const std::vector<const char*> patterns = {R"(^\d{3}$)",
                                             R"(\w+\s)",
                                             R"(^a$|^b$)",
                                             R"(^"a"$)",
                                             R"(a\\b)",
                                             R"(^.{2,5}$)",
                                             R"(\bfoo\b)",
                                             R"(\Boo)",
                                             R"(^(?=.*[A-Z])(?=.*\d).{3,8}$)",
                                             R"(^(?!foo)[a-z]+$)",
                                             R"(a(?=b))",
                                             R"(a(?!b)c?)",
                                             "x*",
                                             "",
                                             "^$",
                                             R"(a|^b|c$)",
                                             R"(^(a|b)*c$)",
                                             R"([^a-c])",
                                             R"(^[\w.-]+@[\w-]+\.[a-z]{2,}$)",
                                             R"(^(?:ab){2,3}?$)",
                                             R"([\d\-x]+)",
                                             R"(^a(?=b)bc$)",
                                             R"((a$|b)c*)",
                                             R"(^\/a\/b$)",
                                             R"((?:^|,)x(?:$|,))"};
  const std::string alphabet = "abcfoxABC019 _-.,\"\\/@";
  std::mt19937 random(3);
  for (const char* pattern : patterns) {
    const std::regex reference(pattern, std::regex::ECMAScript);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (unsigned k = random() % 8; k > 0; --k) text += alphabet[random() % alphabet.size()];
      if (i < 5) text = std::vector<const char*>{"foo", "a foo b", "\"a\"", "ab", "/a/b"}[static_cast<std::size_t>(i)];
      EXPECT_EQ(regex_matches(pattern, text), std::regex_search(text, reference)) << pattern << " in '" << text << "'";
    }
  }
}

TEST(Regex, IsOfCodePoints) {
  EXPECT_TRUE(regex_matches("^é+$", "éé"));
  EXPECT_FALSE(regex_matches("^é+$", "é\xC3"));
  EXPECT_TRUE(regex_matches(R"(^.$)", "🙂"));
  EXPECT_TRUE(regex_matches(R"(^\u{1F642}\uD83D\uDE42$)", "🙂🙂"));
  EXPECT_TRUE(regex_matches(R"(^\p{Lu}\p{Ll}+$)", "Élan"));
  EXPECT_FALSE(regex_matches(R"(^\p{L}+$)", "a1"));
  EXPECT_TRUE(regex_matches(R"(^\P{L}+$)", "1-"));
  EXPECT_TRUE(regex_matches(R"(^\p{Letter}\p{Nd}$)", "ж5"));
  EXPECT_TRUE(regex_matches(R"((?i)^éa$)", "ÉA"));
  EXPECT_FALSE(regex_matches(R"(^\d$)", "٣"));
  EXPECT_TRUE(regex_matches(R"(^[a-z]+(?<!x)$)", "abc"));
  EXPECT_FALSE(regex_matches(R"(^[a-z]+(?<!x)$)", "abx"));
  EXPECT_TRUE(regex_matches(R"(a{,3})", "a{,3}"));
}

TEST(Regex, RefusesWhatItDoesNotHave) {
  for (const char* pattern :
       {R"((a)\1)", R"(\k<n>)", "(", ")", "[a", "*", "a**", R"(\q)", R"(\p{Script=Greek})", "(?:(?!a)b|c)*", "a{2,1}",
        "[b-a]", R"(\)", R"(\u{110000})", "a{1,1000000}", R"((?<=a)b)"}) {
    schema::Work work(20'000'000);
    EXPECT_THROW(schema::compile_regex(pattern, work), Error) << pattern;
  }
  schema::Work little(10'000);
  EXPECT_THROW(schema::compile_regex("(a|b)*a(a|b){10}", little), schema::TooComplex);
}

}  // namespace
}  // namespace palimpsest::testing
