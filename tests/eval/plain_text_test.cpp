#include "palimpsest/eval/plain_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "palimpsest/core/error.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

TEST(PlainText, LeavesCleanTextAlone) {
  const auto plain = plain_text("a\rb\n\n*** START OF NOTHING\n");
  EXPECT_EQ(plain.text, "a\rb\n\n*** START OF NOTHING\n");
  EXPECT_TRUE(plain.done.empty());
}

TEST(PlainText, SaysWhatItDid) {
  const auto plain = plain_text("\xEF\xBB\xBFone\r\ntwo\r\n");
  EXPECT_EQ(plain.text, "one\ntwo\n");
  ASSERT_EQ(plain.done.size(), 2u);
  EXPECT_EQ(plain.done[1], "turned 2 CRLF into LF");
}

TEST(PlainText, CutsGutenbergMarksOverTwoLines) {
  const std::string book =
      "Title\r\n***START OF THE PROJECT GUTENBERG EBOOK A LONG\r\nTITLE***\r\n\r\nCall me.\r\n* * *\r\nMore.\r\n"
      "***END OF THE PROJECT GUTENBERG EBOOK A LONG\r\nTITLE***\r\n*** START: FULL LICENSE ***\r\nlaw\r\n";
  const auto plain = plain_text(book, {.gutenberg = true});
  EXPECT_EQ(plain.text, "Call me.\n* * *\nMore.\n");
  ASSERT_EQ(plain.done.size(), 2u);
  EXPECT_NE(plain.done[1].find("header"), std::string::npos);
}

TEST(PlainText, RefusesACutThatIsNotThere) {
  EXPECT_THROW(plain_text("no marks", {.gutenberg = true}), Error);
  EXPECT_THROW(plain_text("*** START OF THE PROJECT ***\ntext", {.gutenberg = true}), Error);
}

TEST(PlainText, EveryBookOfTheSharedFolder) {
  const auto shared = shared_dir();
  if (!shared) GTEST_SKIP() << "needs shared/text (set PALIMPSEST_SHARED)";
  int books = 0;
  for (const char* folder : {"text/pg19-test", "text/books"})
    for (const auto& file : std::filesystem::directory_iterator(*shared / folder)) {
      std::ifstream stream(file.path(), std::ios::binary);
      const auto plain = plain_text({std::istreambuf_iterator<char>(stream), {}}, {.gutenberg = true});
      EXPECT_GT(plain.text.size(), 100000u) << file.path();
      EXPECT_EQ(plain.text.find('\r'), std::string::npos) << file.path();
      EXPECT_EQ(plain.text.find("PROJECT GUTENBERG EBOOK"), std::string::npos) << file.path();
      ++books;
    }
  EXPECT_GE(books, 2);
}

}  // namespace
}  // namespace palimpsest::testing
