// The include order of the parts, and the length of files. A rule is a function from a file's text to complaints, so
// that each is shown to fail on a fixture before it is trusted on the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;
using Complaints = std::vector<std::string>;

// Who may include whom: "part" allows all of it, "part/file.h" that header alone. Every part sees itself.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"core", {}},
      {"policy", {"core"}},
      {"budget", {"core"}},
      {"cache", {"core"}},
      {"evict", {"core", "policy", "budget", "cache"}},
      {"attention", {"core", "cache/view.h"}},
      {"text", {"core"}},
      {"model", {"core", "attention", "cache"}},
      {"engine", {"core", "model", "evict", "text", "cache", "policy", "budget", "attention"}},
      {"server", {"core", "engine", "text", "evict", "budget", "model", "cache"}},
      {"eval", {"core", "engine", "text", "evict", "model", "cache"}},
      {"bench", {"core", "engine", "text", "evict", "model", "cache"}},
  };
  return table;
}

constexpr int kMaxLines = 600;

// `path` is relative to src/palimpsest, as in "cache/pool.cpp".
Complaints include_complaints(const std::string& path, const std::string& text) {
  Complaints complaints;
  const std::string part = path.substr(0, path.find('/'));
  const auto row = allowed().find(part);
  if (row == allowed().end()) return {path + ": the part '" + part + "' has no row in the include order"};

  static const std::regex include(R"(^\s*#\s*include\s*["<]palimpsest/(([^/">]+)[^">]*)[">])");
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    if (match[2] == part || row->second.contains(match[2]) || row->second.contains(match[1])) continue;
    complaints.push_back(path + ":" + std::to_string(number) + ": " + part + " may not include palimpsest/" +
                         match[1].str());
  }
  return complaints;
}

Complaints length_complaints(const std::string& path, const std::string& text) {
  const auto lines = std::count(text.begin(), text.end(), '\n');
  if (lines <= kMaxLines) return {};
  return {path + ": " + std::to_string(lines) + " lines, more than " + std::to_string(kMaxLines) +
          ": split it by idea"};
}

bool is_source(const fs::path& path) {
  return path.extension() == ".h" || path.extension() == ".cpp";
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Applies a rule to every source file below `folder`; says how many files it saw.
template <typename Rule>
int complain(const fs::path& folder, Rule rule, Complaints& all) {
  int files = 0;
  if (!fs::exists(folder)) return 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    ++files;
    const auto complaints = rule(fs::relative(entry.path(), folder).generic_string(), content(entry.path()));
    all.insert(all.end(), complaints.begin(), complaints.end());
  }
  return files;
}

std::string joined(const Complaints& complaints) {
  std::string text;
  for (const auto& complaint : complaints) text += complaint + '\n';
  return text;
}

TEST(IncludeOrder, HoldsInTheTree) {
  Complaints complaints;
  EXPECT_GT(complain(source_dir() / "src" / "palimpsest", include_complaints, complaints), 0);
  EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(IncludeOrder, RefusesAnIncludeThatRunsTheOtherWay) {
  const auto complaints = include_complaints("policy/lag.cpp",
                                             "#include \"palimpsest/core/types.h\"\n"
                                             "#include \"palimpsest/cache/view.h\"\n"
                                             "#include \"palimpsest/policy/policy.h\"\n");
  ASSERT_EQ(complaints.size(), 1u);
  EXPECT_EQ(complaints[0], "policy/lag.cpp:2: policy may not include palimpsest/cache/view.h");
}

TEST(IncludeOrder, SeesEverySpellingOfAnInclude) {
  for (const char* line :
       {"#include <palimpsest/engine/engine.h>", "  #  include \"palimpsest/engine/engine.h\" // why"})
    EXPECT_EQ(include_complaints("core/x.h", line).size(), 1u) << line;
}

TEST(IncludeOrder, AttentionSeesTheViewOfTheCacheOnly) {
  EXPECT_TRUE(include_complaints("attention/a.cpp", "#include \"palimpsest/cache/view.h\"\n").empty());
  EXPECT_EQ(include_complaints("attention/a.cpp", "#include \"palimpsest/cache/pool.h\"\n").size(), 1u);
}

TEST(IncludeOrder, APartWithoutARowIsRefused) {
  EXPECT_EQ(include_complaints("utils/x.h", "").size(), 1u);
}

TEST(FileLength, HoldsInTheTree) {
  Complaints complaints;
  int files = 0;
  for (const char* folder : {"src", "apps", "tests", "bench"})
    files += complain(source_dir() / folder, length_complaints, complaints);
  EXPECT_GT(files, 0);
  EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(FileLength, RefusesALongFile) {
  EXPECT_TRUE(length_complaints("a.cpp", std::string(kMaxLines, '\n')).empty());
  EXPECT_EQ(length_complaints("a.cpp", std::string(kMaxLines + 1, '\n')).size(), 1u);
}

}  // namespace
}  // namespace palimpsest::testing
