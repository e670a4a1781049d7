// Files that others change: nothing waits for a FIFO, and a file that becomes shorter is an Error, not a signal.
#include "palimpsest/core/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/mapped_file.h"
#include "palimpsest/core/new_file.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class RegularFileTest : public ::testing::Test {
 protected:
  ~RegularFileTest() override { fs::remove(path_); }
  // Two arrays, and the checksum of all before it.
  void write_arrays() {
    for (int i = 0; i < 100'000; ++i) words_.push_back(i * 7);
    Checksum sum;
    NewFile file(path_);
    ByteWriter out([&](std::span<const std::byte> data) {
      sum.add(data);
      file.write(data);
    });
    out.text("head");
    out.array(std::span<const int>(words_));
    const std::uint64_t value = sum.value();
    file.write(std::as_bytes(std::span(&value, 1)));
    file.commit();
  }
  ByteReader reader() const {
    return {std::make_shared<const RegularFile>(path_, "a test's file", "'mine'"), "'mine' is damaged"};
  }

  const std::string path_ = own_file("regular");
  std::vector<int> words_;
};

TEST_F(RegularFileTest, NothingWaitsForAFifo) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const std::string expected = path_ + ": is not a regular file; give the path of a snapshot";
  EXPECT_EQ(error_of([&] { RegularFile(path_, "a snapshot"); }), expected);
  EXPECT_EQ(error_of([&] { MappedFile(path_, "a snapshot"); }), expected);
  NewFile::remove_abandoned(path_);
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(RegularFileTest, IsReadInPartsAndChecked) {
  write_arrays();
  ByteReader in = reader();
  EXPECT_EQ(in.text(), "head");
  ByteReader copy = in;
  in.release();
  EXPECT_EQ(in.array<int>(), words_);
  in.require_checksum();
  EXPECT_TRUE(in.at_end());
  EXPECT_EQ(copy.bytes(20).size(), 20u);
  copy.skip(copy.left() - 8);
  copy.require_checksum();
  EXPECT_EQ(error_of([&] { reader().bytes(fs::file_size(path_) + 1); }), "'mine' is damaged: ends too early");
}

TEST_F(RegularFileTest, BecomesShorter) {
  write_arrays();
  ByteReader in = reader();
  EXPECT_EQ(in.text(), "head");
  fs::resize_file(path_, 200'000);
  EXPECT_EQ(error_of([&] { in.array<int>(); }), "'mine': became shorter while it was read; use an older copy");
}

TEST_F(RegularFileTest, IsChanged) {
  write_arrays();
  ByteReader in = reader();
  EXPECT_EQ(in.text(), "head");
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(300'000);
    file.put('\x55');
  }
  EXPECT_NE(in.array<int>(), words_);
  EXPECT_EQ(error_of([&] { in.require_checksum(); }),
            "'mine' is damaged: its checksum is wrong: truncated or changed; use another copy");
}

TEST_F(RegularFileTest, IsRemoved) {
  write_arrays();
  ByteReader in = reader();
  fs::remove(path_);
  EXPECT_EQ(in.text(), "head");
  EXPECT_EQ(in.array<int>(), words_);
  in.require_checksum();
}

}  // namespace
}  // namespace palimpsest::testing
