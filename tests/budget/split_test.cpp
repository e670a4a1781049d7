#include "palimpsest/budget/split.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::string file_of(const std::string& text) {
  const std::string path = own_file("split.txt");
  std::ofstream(path) << text;
  return path;
}

TEST(Split, UniformIsNoList) {
  EXPECT_TRUE(split_budget("uniform", 256, 3, 2, 5).empty());
}

TEST(Split, LaterLinesHoldAgainstEarlierOnes) {
  const auto path = file_of("# all\n* * 64\n1 * 100   # a layer\n\n * 1 80\n2 0 7\n");
  EXPECT_EQ(split_budget(path, 256, 3, 2, 5), (std::vector<int>{64, 80, 100, 80, 7, 80}));
}

TEST(Split, WhoIsNotNamedHasTheBudget) {
  EXPECT_EQ(split_budget(file_of("1 1 9\n"), 256, 2, 2, 5), (std::vector<int>{256, 256, 256, 9}));
}

TEST(Split, SaysWhatIsWrongAndWhere) {
  const auto message = [](const std::string& text) {
    const std::string path = file_of(text), all = error_of([&] { split_budget(path, 256, 3, 2, 5); });
    return all.substr(all.find("line"));
  };
  EXPECT_EQ(message("0 0\n"), "line 1: '0 0' is not 'layer head tokens'");
  EXPECT_EQ(message("0 0 9 9\n"), "line 1: '0 0 9 9' is not 'layer head tokens'");
  EXPECT_EQ(message("\n3 0 9\n"), "line 2: layer 3 is out of range: use 0 to 2");
  EXPECT_EQ(message("0 x 9\n"), "line 1: head 'x' is not a whole number: use 0 to 1");
  EXPECT_EQ(message("0 0 4\n"), "line 1: tokens 4 is out of range: use 5 to 1073741824");
  EXPECT_EQ(error_of([] { split_budget("/no/such", 256, 3, 2, 5); }),
            "split '/no/such': no such file; use uniform, or a file with lines 'layer head tokens'");
}

}  // namespace
}  // namespace palimpsest::testing
