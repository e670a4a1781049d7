#include "palimpsest/text/stop.h"

#include <gtest/gtest.h>

#include <random>

#include "palimpsest/core/error.h"

namespace palimpsest::testing {
namespace {

// The contract by brute force: the stop string that is completed first; of those that end together, the longest.
std::string until_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopStrings, HoldsBackWhatMayBecomeOne) {
  StopStrings stops({"<end>"});
  EXPECT_EQ(stops.put("a <e"), "a ");
  EXPECT_EQ(stops.put("n"), "");
  EXPECT_EQ(stops.put("d "), "<end ");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.put("b <end> c"), "b ");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.put("d"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GivesBackWhatWasHeldInVain) {
  StopStrings stops({"xyz"});
  EXPECT_EQ(stops.put("wxy"), "w");
  EXPECT_EQ(stops.finish(), "xy");
}

TEST(StopStrings, WithoutAnyTheTextPasses) {
  StopStrings stops({});
  EXPECT_EQ(stops.put("abc"), "abc");
  EXPECT_FALSE(stops.found());
}

TEST(StopStrings, ResultDoesNotDependOnHowTheTextIsCut) {
  std::mt19937 random(2);
  const auto word = [&](int longest) {
    std::string out;
    for (int n = 1 + static_cast<int>(random() % static_cast<unsigned>(longest)); n > 0; --n)
      out += "abc"[random() % 3];
    return out;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> words;
    for (int n = static_cast<int>(random() % 4); n > 0; --n) words.push_back(word(5));
    const std::string text = word(14);
    StopStrings stops(words);
    std::string out;
    for (std::size_t at = 0; at < text.size() && !stops.found();) {
      const std::size_t n = 1 + random() % 4;
      out += stops.put(std::string_view(text).substr(at, n));
      at += n;
    }
    out += stops.finish();
    ASSERT_EQ(out, until_stop(text, words)) << text << ' ' << ::testing::PrintToString(words);
    ASSERT_EQ(stops.found(), out != text);
    stopped += stops.found();
  }
  EXPECT_GT(stopped, 1000);
}

TEST(StopStrings, RefusesWhatCannotBeMeant) {
  EXPECT_THROW(StopStrings({""}), Error);
  EXPECT_THROW(StopStrings({"\xFF"}), Error);
}

}  // namespace
}  // namespace palimpsest::testing
