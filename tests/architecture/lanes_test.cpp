// HWY_MAX_LANES_D is the number of lanes only on targets with fixed vector sizes; on SVE and RVV it is an upper bound.
// Only kernels that are never compiled for those (attention/kernels.h) may use it as a count; all others use
// hn::Lanes(d).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/file_content.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

bool counts_by_max_lanes(const std::string& text) {
  return text.find("HWY_MAX_LANES_D(") != std::string::npos || text.find("MaxLanes(") != std::string::npos;
}

TEST(VectorLanes, OnlyCodeWithoutScalableTargetsCountsByTheirMaximum) {
  int files = 0;
  for (const char* folder : {"src", "apps", "research"})
    for (const auto& entry : fs::recursive_directory_iterator(source_dir() / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
      ++files;
      const std::string text = file_content(entry.path());
      if (!counts_by_max_lanes(text)) continue;
      EXPECT_NE(text.find("static_assert(!HWY_HAVE_SCALABLE"), std::string::npos)
          << entry.path() << ": step by hn::Lanes(d), or refuse scalable targets with a static_assert";
    }
  EXPECT_GT(files, 100);
}

TEST(VectorLanes, SeesTheMaximum) {
  EXPECT_TRUE(counts_by_max_lanes("constexpr int kLanes = HWY_MAX_LANES_D(F);"));
  EXPECT_FALSE(counts_by_max_lanes("const int lanes = static_cast<int>(hn::Lanes(df));"));
}

}  // namespace
}  // namespace palimpsest::testing
