// Errors of mapping say which kind of file was expected.
#include "palimpsest/core/mapped_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

TEST(MappedFile, ErrorsNameWhatTheReaderExpects) {
  const std::string folder = ::testing::TempDir(), empty = own_file("empty"), none = own_file("none");
  std::ofstream(empty).close();
  const auto message = [](const std::string& path) { return error_of([&] { MappedFile(path, "a scorer"); }); };
  EXPECT_EQ(message(none), none + ": cannot be opened (No such file or directory); give the path of a scorer");
  EXPECT_EQ(message(folder), folder + ": is not a regular file; give the path of a scorer");
  EXPECT_EQ(message(empty), empty + ": is empty; give the path of a scorer");
}

}  // namespace
}  // namespace palimpsest::testing
