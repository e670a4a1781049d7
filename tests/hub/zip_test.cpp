// Members of wheels.
#include "palimpsest/hub/zip_member.h"

#include <gtest/gtest.h>

#include <fstream>

#include "palimpsest/core/error.h"
#include "tests/hub/zip_writer.h"
#include "tests/support/subprocess.h"

namespace palimpsest::testing {
namespace {

class Zip : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_unzip()) GTEST_SKIP() << "needs zlib";
  }
  static std::string member(const std::string& archive, const std::string& name) {
    const auto path = write_file("archive.zip", archive);
    std::string out;
    const auto size = unzip_member(path.string(), name, [&](std::string_view piece) { out += piece; });
    EXPECT_EQ(size, out.size());
    return out;
  }
};

TEST_F(Zip, MembersAreStoredOrDeflated) {
  const std::string big(700'001, 'x');
  for (const bool deflate : {false, true}) {
    const std::string archive = zip_of({{"a/b", "one"}, {"c", big}, {"empty", ""}}, deflate, "a comment");
    EXPECT_EQ(member(archive, "a/b"), "one");
    EXPECT_EQ(member(archive, "c"), big);
    EXPECT_EQ(member(archive, "empty"), "");
    EXPECT_THROW(member(archive, "d"), Error);
  }
}

// By Python's zlib, with Huffman codes.
TEST_F(Zip, MembersAreCompressedByOthers) {
  const auto path = write_file("python.zip", "");
  const Finished made = run_program(
      "/usr/bin/env",
      {"python3", "-c",
       "import sys, zipfile\n"
       "with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('m', 'palimpsest ' * 100000)",
       path.string()});
  if (made.code != 0) GTEST_SKIP() << "needs python3";
  std::string out;
  unzip_member(path.string(), "m", [&](std::string_view piece) { out += piece; });
  EXPECT_EQ(out.size(), 1'100'000u);
  EXPECT_TRUE(out.ends_with("palimpsest palimpsest "));
}

TEST_F(Zip, DamageIsFound) {
  const std::string archive = zip_of({{"m", std::string(1000, 'x')}});
  EXPECT_THROW(member("", "m"), Error);
  EXPECT_THROW(member("not a zip archive, but long enough", "m"), Error);
  EXPECT_THROW(member(archive.substr(0, archive.size() - 1), "m"), Error);
  // Each byte, one after the other: an Error, or a byte that does not matter. Never another content.
  const std::size_t data = archive.find("xxx"), end = archive.rfind("xxx");
  for (std::size_t i = 0; i<archive.size(); i += i> data && i + 50 < end ? 50 : 1) {
    std::string broken = archive;
    broken[i] = static_cast<char>(broken[i] ^ 0x55);
    const auto path = write_file("broken.zip", broken);
    std::string out;
    try {
      unzip_member(path.string(), "m", [&](std::string_view piece) { out += piece; });
    } catch (const Error&) {
      continue;
    }
    EXPECT_EQ(out, std::string(1000, 'x')) << i;
  }
}

TEST_F(Zip, AMemberNeverBecomesLongerThanAnnounced) {
  std::string archive = zip_of({{"m", std::string(100'000, 'x')}});
  const auto at = archive.find("PK\1\2") + 24;
  archive.replace(at, 4, little_endian(1000, 4));
  std::size_t most = 0;
  const auto path = write_file("bomb.zip", archive);
  EXPECT_THROW(unzip_member(path.string(), "m", [&](std::string_view piece) { most += piece.size(); }), Error);
  EXPECT_LE(most, 1000u);
}

}  // namespace
}  // namespace palimpsest::testing
