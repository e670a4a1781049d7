#include "palimpsest/core/version.h"

#include <gtest/gtest.h>

#include <regex>

namespace palimpsest::testing {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_TRUE(std::regex_match(version(), std::regex(R"(\d+\.\d+\.\d+)")));
}

}  // namespace
}  // namespace palimpsest::testing
