#include "palimpsest/core/parse.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(Parse, Integers) {
  EXPECT_EQ(parse_integer("256", "budget", 0, 1000), 256);
  EXPECT_EQ(parse_integer("-1", "count", -1, 1000), -1);
  EXPECT_EQ(parse_integer("9223372036854775807", "x", 0, INT64_MAX), INT64_MAX);
}

TEST(Parse, IntegersThatAreNot) {
  for (const char* text : {"", " 1", "1 ", "1k", "0x10", "+1", "1.5", "one", "-", "--1"})
    EXPECT_EQ(error_of([&] { parse_integer(text, "budget", 0, 10); }),
              "budget '" + std::string(text) + "' is not a whole number: use 0 to 10");
  for (const char* text : {"11", "-1", "99999999999999999999", "-99999999999999999999"})
    EXPECT_EQ(error_of([&] { parse_integer(text, "budget", 0, 10); }),
              "budget " + std::string(text) + " is out of range: use 0 to 10");
}

TEST(Parse, Choices) {
  constexpr std::array<std::string_view, 3> names = {"a", "b", "c"};
  EXPECT_EQ(parse_choice("c", "letter", names), 2u);
  EXPECT_EQ(error_of([&] { parse_choice("d", "letter", names); }), "unknown letter 'd': use a, b or c");
  EXPECT_EQ(error_of([&] { parse_choice("", "letter", std::span(names).first(1)); }), "unknown letter '': use a");
  // Long lists begin with what was probably meant.
  const std::vector<std::string_view> many = {"streaming", "h2o", "keydiff", "knorm", "snapkv",
                                              "tova",      "ems", "peak",    "duo"};
  EXPECT_EQ(
      error_of([&] { parse_choice("h20", "method", many); }),
      "unknown method 'h20'; did you mean 'h2o'? Use streaming, h2o, keydiff, knorm, snapkv, tova, ems, peak or duo");
}

TEST(Parse, Pairs) {
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;
  EXPECT_EQ(parse_pairs("", "list"), Pairs{});
  EXPECT_EQ(parse_pairs("a=1", "list"), (Pairs{{"a", "1"}}));
  EXPECT_EQ(parse_pairs("a=1,b=x=y", "list"), (Pairs{{"a", "1"}, {"b", "x=y"}}));
  EXPECT_EQ(error_of([] { parse_pairs("a=1,b", "list"); }), "'b' in list is not key=value");
  EXPECT_EQ(error_of([] { parse_pairs("a=", "list"); }), "'a=' in list is not key=value");
  EXPECT_EQ(error_of([] { parse_pairs("=1", "list"); }), "'=1' in list is not key=value");
  EXPECT_EQ(error_of([] { parse_pairs("a=1,,b=2", "list"); }), "'' in list is not key=value");
  EXPECT_EQ(error_of([] { parse_pairs("a=1,", "list"); }), "a comma at the end of list");
}

}  // namespace
}  // namespace palimpsest::testing
