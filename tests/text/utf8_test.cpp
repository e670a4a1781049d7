#include "palimpsest/text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace palimpsest::testing {
namespace {

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.put(bytes);
  return out + stream.finish();
}

// Expected texts are those of Python's bytes.decode("utf-8", "replace"), with \uFFFD spelled out.
struct Case {
  std::string bytes, text;
};
const Case kCases[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    {"a\x80z", "a\xEF\xBF\xBDz"},                                              // a stray continuation
    {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
    {"\xE0\x80\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // overlong
    {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // surrogate
    {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // beyond U+10FFFF
    {"\xF0\x9F\x98"
     "A",
     "\xEF\xBF\xBD"
     "A"},                                                 // cut off: one part
    {"\xE2\x82\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC"},  // cut off, then whole
    {"\xF0\x9F\x98", "\xEF\xBF\xBD"},                      // cut off at the end
    {"\xFF\xFE", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    {std::string("\0x", 2), std::string("\0x", 2)},
};

TEST(Utf8Stream, ReplacesMaximalIllFormedParts) {
  for (const Case& each : kCases) EXPECT_EQ(whole(each.bytes), each.text) << ::testing::PrintToString(each.bytes);
}

TEST(Utf8Stream, GivesWholeCharactersHoweverTheBytesAreCut) {
  std::mt19937 random(1);
  const std::string alphabet = "ab\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xA0\xF4\x90\xC0\xFF\x80\xBF\xE0";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (int n = static_cast<int>(random() % 12); n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + random() % 3;
      const std::string part = stream.put(std::string_view(bytes).substr(at, n));
      ASSERT_FALSE(invalid_utf8(part)) << ::testing::PrintToString(bytes);
      out += part;
      at += n;
    }
    const std::string rest = stream.finish();
    ASSERT_EQ(out + rest, whole(bytes)) << ::testing::PrintToString(bytes);
    ASSERT_EQ(stream.finish(), "");
  }
}

TEST(InvalidUtf8, NamesTheFirstBadByte) {
  EXPECT_FALSE(invalid_utf8("caf\xC3\xA9"));
  EXPECT_EQ(invalid_utf8("caf\xC3"), 3u);
  EXPECT_EQ(invalid_utf8("\xFF"), 0u);
  EXPECT_EQ(invalid_utf8("ab\xED\xA0\x80"), 2u);
}

}  // namespace
}  // namespace palimpsest::testing
