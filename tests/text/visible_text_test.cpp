#include "palimpsest/text/visible_text.h"

#include <gtest/gtest.h>

namespace palimpsest::testing {
namespace {

TEST(VisibleText, NothingThatATerminalExecutesIsLeft) {
  EXPECT_EQ(visible_text("plain\ttext\n"), "plain\ttext\n");
  EXPECT_EQ(visible_text("\x1B[2J\x07\r\x7F"), "␛[2J␇␍␡");
  EXPECT_EQ(visible_text(std::string_view("\0", 1)), "␀");
  EXPECT_EQ(visible_text("\xC2\x9B"
                         "31m"),
            "\xEF\xBF\xBD"
            "31m");  // CSI in one character of C1
  EXPECT_EQ(visible_text("a\xE2\x80\xAE"
                         "b\xE2\x81\xA6"),
            "a<U+202E>b<U+2066>");
  EXPECT_EQ(visible_text("\xD8\x9C\xEF\xBB\xBF"), "<U+061C><U+FEFF>");
  EXPECT_EQ(visible_text("naïve 日本 😀 \xFF"), "naïve 日本 😀 \xEF\xBF\xBD");
}

}  // namespace
}  // namespace palimpsest::testing
