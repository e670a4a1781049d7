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

const std::string kLine = "'layer head tokens', 'layer head FACTORx' or 'layer head streaming'";

SplitOf of(int budget, int layers, int kv_heads, int min) {
  return {.budget = budget, .heads = std::vector<int>(static_cast<std::size_t>(layers), kv_heads), .min = min};
}

TEST(Split, UniformIsNoList) {
  EXPECT_TRUE(split_budget(Split("uniform"), of(256, 3, 2, 5)).empty());
}

TEST(Split, LaterLinesHoldAgainstEarlierOnes) {
  const auto path = file_of("# all\n* * 64\n1 * 100   # a layer\n\n * 1 80\n2 0 7\n");
  EXPECT_EQ(split_budget(Split(path), of(256, 3, 2, 5)), (std::vector<int>{64, 80, 100, 80, 7, 80}));
}

TEST(Split, WhoIsNotNamedHasTheBudget) {
  EXPECT_EQ(split_budget(Split(file_of("1 1 9\n")), of(256, 2, 2, 5)), (std::vector<int>{256, 256, 256, 9}));
}

TEST(Split, FactorsMultiplyWhatIsNotProtected) {
  const auto path = file_of("* 0 1.5x\n* 1 0.5x\n1 1 0x\n");
  SplitOf shape = of(256, 2, 2, 5);
  EXPECT_EQ(split_budget(Split(path), shape), (std::vector<int>{384, 128, 384, 5}));
  shape.guarded = 56;
  EXPECT_EQ(split_budget(Split(path), shape), (std::vector<int>{356, 156, 356, 56}));
}

TEST(Split, WhatAFactorGivesBeyondTheMaxGoesToTheOthers) {
  SplitOf shape = of(100, 2, 2, 5);
  shape.max = 150;
  EXPECT_EQ(split_budget(Split(file_of("0 0 3x\n0 1 0.6x\n1 0 0.3x\n1 1 0.1x\n")), shape),
            (std::vector<int>{150, 150, 75, 25}));  // 300, 60, 30, 10; then 150, 150, 75, 25
  EXPECT_EQ(split_budget(Split(file_of("0 0 3x\n0 1 400\n1 0 0.3x\n1 1 0.1x\n")), shape),
            (std::vector<int>{150, 400, 142, 47}));  // tokens that a line names are kept
  shape.max = 50;                                    // less than the budget: all have that
  EXPECT_EQ(split_budget(Split(file_of("* 0 1.5x\n* 1 0.5x\n")), shape), (std::vector<int>{100, 100, 100, 100}));
}

TEST(Split, AFileOfOneModelIsRefusedForOthers) {
  const auto path = file_of("# shares\nmodel 00000000deadbeef\n* 0 1.5x\n* 1 0.5x\n");
  SplitOf shape = of(256, 2, 2, 5);
  EXPECT_EQ(split_budget(Split(path), shape).size(), 4u);  // of bytes only: the model is not known
  shape.fingerprint = [] { return std::uint64_t{0xdeadbeef}; };
  EXPECT_EQ(split_budget(Split(path), shape).size(), 4u);
  shape.fingerprint = [] { return std::uint64_t{0xdeadbeee}; };
  EXPECT_EQ(error_of([&] { split_budget(Split(path), shape); }),
            path + ", line 2: it was made for another model: make one for this model with `palimpsest fit -m MODEL`");
  for (const char* line : {"model\n", "model deadbeef\n", "model 00000000deadbeef 1\n", "model x0000000deadbeef\n"})
    EXPECT_EQ(error_of([&] { split_budget(Split(file_of(line)), shape); }),
              path + ", line 1: give 'model' and a fingerprint of 16 hexadecimal digits");
}

TEST(Split, SaysWhatIsWrongAndWhere) {
  const auto message = [](const std::string& text) {
    const std::string path = file_of(text), all = error_of([&] { split_budget(Split(path), of(256, 3, 2, 5)); });
    return all.substr(all.find("line"));
  };
  EXPECT_EQ(message("0 0\n"), "line 1: '0 0' is not " + kLine);
  EXPECT_EQ(message("0 0 9 9\n"), "line 1: '0 0 9 9' is not " + kLine);
  EXPECT_EQ(message("\n3 0 9\n"), "line 2: layer 3 is out of range: use 0 to 2");
  EXPECT_EQ(message("0 x 9\n"), "line 1: head 'x' is not a whole number: use 0 to 1");
  EXPECT_EQ(message("0 0 -1x\n"), "line 1: factor '-1': a number from 0 to 1000");
  EXPECT_EQ(message("0 0 4\n"), "line 1: tokens 4 is out of range: use 5 to 1073741824");
  EXPECT_EQ(error_of([] { split_budget(Split("/no/such"), of(256, 3, 2, 5)); }),
            "split '/no/such': no such file; use uniform, pyramid, ada, or a file with lines 'layer head tokens'");
}

// std::ifstream opens both without an error; reading them fails.
TEST(Split, WhatCannotBeReadToItsEndIsRefused) {
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(error_of([&] { split_budget(Split(folder), of(256, 3, 2, 5)); }),
            "split '" + folder + "': is a directory; give a file with lines 'layer head tokens'");
  EXPECT_EQ(error_of([] { split_budget(Split("/proc/self/mem"), of(256, 3, 2, 5)); }),
            "split '/proc/self/mem': cannot be read to its end (Input/output error)");
}

TEST(Split, AdaBeginsEvenly) {
  EXPECT_EQ(split_budget(Split("ada"), of(256, 2, 3, 5)), std::vector<int>(6, 256));
}

TEST(Split, PyramidIsTheSameInAllHeadsOfALayer) {
  SplitOf shape = of(256, 4, 2, 33);
  shape.guarded = 32;
  // C = 224: last 11, first 437, steps of 142
  EXPECT_EQ(split_budget(Split("pyramid"), shape), (std::vector<int>{469, 469, 327, 327, 185, 185, 43, 43}));
  shape.budget = 50;
  EXPECT_EQ(
      error_of([&] { split_budget(Split("pyramid"), shape); }),
      "budget 50 with split pyramid leaves the last layer 32 tokens, and it needs 33: raise the budget or protect "
      "fewer tokens");
}

// The other heads share what streaming heads do not use; the total is unchanged.
TEST(Split, StreamingHeads) {
  const auto path = file_of("0 * streaming\n1 1 streaming # a head\n");
  EXPECT_EQ(split_budget(Split(path), of(1000, 3, 2, 5)), (std::vector<int>{320, 320, 1680, 320, 1680, 1680}));
  EXPECT_EQ(split_budget(Split(path), of(101, 3, 2, 5)), (std::vector<int>{50, 50, 152, 50, 152, 152}));
  EXPECT_EQ(split_budget(Split(file_of("* * streaming\n0 0 7\n")), of(100, 1, 2, 5)), (std::vector<int>{7, 50}));
  EXPECT_EQ(split_budget(Split(file_of("0 0 streaming\n0 1 7\n")), of(100, 1, 3, 5)), (std::vector<int>{50, 7, 243}));
  EXPECT_NE(error_of([&] {
              split_budget(Split(file_of("0 0 streaming\n0 1 900\n")), of(100, 1, 3, 5));
            }).find("are left 0 tokens of a budget of 100"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              split_budget(Split(file_of("0 0 streaming\n")), of(9, 1, 3, 5));
            }).find("half of a budget of 9 is 4 tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
