// A constant of a test's file that has the name of one in a header of its folder, or of tests/support, hides it: in a
// unity build also in the other files of the folder, which then test something else.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/support/file_content.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

// Of constants at the beginning of a line.
std::set<std::string> constants(const std::string& text) {
  static const std::regex constant(
      R"(\n(?:inline |static )*(?:constexpr|const) [\w:<>,* ]*\b(k[A-Z]\w*)(?:\[\w*\])? ?[={;])");
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), constant), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST(HiddenNames, AreNotInTheTests) {
  std::map<fs::path, std::set<std::string>> of_headers, of_sources;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "tests")) {
    const fs::path& path = entry.path();
    auto& of = path.extension() == ".h" ? of_headers : of_sources;
    if (path.extension() == ".h" || path.extension() == ".cpp")
      of[path.parent_path()].merge(constants("\n" + file_content(path)));
  }
  const fs::path support = source_dir() / "tests" / "support";
  EXPECT_FALSE(of_headers[support].empty());
  for (const auto& [folder, names] : of_sources)
    for (const std::string& name : names)
      EXPECT_FALSE(of_headers[folder].contains(name) || of_headers[support].contains(name))
          << folder << ": " << name << " is in a header, too: rename one";
}

TEST(HiddenNames, ConstantsAreFound) {
  EXPECT_EQ(
      constants(
          "\ninline const char* const kMethods[] = {\"full\"};\nconstexpr int kTwo = 2;\n  const int kInside = 3;\n"
          "const std::vector<int> kThree{3};\n"),
      (std::set<std::string>{"kMethods", "kTwo", "kThree"}));
}

}  // namespace
}  // namespace palimpsest::testing
