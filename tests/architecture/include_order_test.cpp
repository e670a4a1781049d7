// The include order of the parts, of the folders inside a part and of the files inside a folder; and the length of
// files. A rule is a function from texts to complaints, so that each is first tested on a fixture that violates it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/file_content.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;
using Complaints = std::vector<std::string>;

// Allowed includes, the table of docs/architecture.md: "part" allows all its headers, "part/file.h" that header only.
// Each part may include itself.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"core", {}},
      {"policy", {"core"}},
      {"budget", {"core"}},
      {"cache", {"core"}},
      {"evict", {"core", "policy", "budget", "cache"}},
      {"attention",
       {"core", "cache/view.h", "cache/recall_pages.h", "cache/formats/q3.h", "cache/formats/q4.h",
        "cache/formats/q8_0.h"}},
      {"matmul", {"core"}},
      {"text", {"core"}},
      {"model", {"core", "matmul", "cache/geometry.h"}},
      {"hub", {"core"}},
      {"encoder", {"core", "text", "model"}},
      {"graph", {"core", "model", "matmul", "attention", "cache"}},
      {"engine", {"core", "graph", "model", "evict", "text", "cache", "policy", "budget", "attention"}},
      {"server", {"core", "engine", "encoder", "text", "evict", "budget", "model", "cache"}},
      {"eval", {"core", "engine", "text", "evict", "budget", "model", "graph", "cache"}},
      {"fit", {"core", "engine", "text", "evict", "policy", "budget", "model", "graph", "cache", "eval"}},
      {"speed", {"core", "engine", "cache"}},
      {"load", {"core", "engine"}},
  };
  return table;
}

// What a folder, or one of its files, may include from other folders of its part. A folder may include itself.
const std::map<std::string, std::set<std::string>>& allowed_inside() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"cache", {"cache/formats"}},
      {"graph/cpu", {"graph"}},
      {"graph/device", {"graph"}},
      {"graph/decoder.cpp", {"graph/cpu", "graph/device"}},  // chooses the path
      {"text/grammar", {"text"}},
      {"text/sampler.cpp", {"text/grammar"}},
      {"text/schema", {"text/grammar"}},
      {"text/chat_template.cpp", {"text/schema"}},
      {"text/tool_grammar.cpp", {"text/schema"}},
      {"engine/sequence", {"engine/mechanism"}},
      {"engine/speculation", {"engine/sequence"}},
      {"engine/generation", {"engine/sequence", "engine/speculation"}},
      {"engine/scheduler", {"engine/sequence", "engine/speculation", "engine/generation"}},
      {"model/families", {"model"}},
      {"model/synthetic", {"model", "model/families"}},
      {"model/model.cpp", {"model/families", "model/synthetic"}},  // opens any kind of model
      {"server/http", {"server"}},
      {"server/request", {"server"}},
      {"server/reply", {"server", "server/http", "server/request"}},
      {"server/apis", {"server", "server/request", "server/reply"}},
      {"server/endpoints", {"server", "server/http", "server/request", "server/reply", "server/apis"}},
      {"server/server.cpp", {"server/http", "server/endpoints"}},  // puts the endpoints into the HTTP server
  };
  return table;
}

constexpr int kMaxLines = 600;

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

struct Include {
  std::string path;  // below src/palimpsest, as in "cache/pool.h"
  int line;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex include(R"(^\s*#\s*include\s*["<]palimpsest/([^">]+)[">])");
  std::vector<Include> out;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (std::regex_search(line, match, include)) out.push_back({match[1].str(), number});
  }
  return out;
}

// `path` is relative to src/palimpsest, as in "cache/pool.cpp".
Complaints include_complaints(const std::string& path, const std::string& text) {
  Complaints complaints;
  const std::string part = path.substr(0, path.find('/')), folder = folder_of(path);
  const auto row = allowed().find(part);
  if (row == allowed().end()) return {path + ": the part '" + part + "' has no row in the include order"};

  for (const Include& include : includes_of(text)) {
    const std::string to = include.path.substr(0, include.path.find('/')), to_folder = folder_of(include.path);
    bool good = row->second.contains(to) || row->second.contains(include.path);
    if (to == part) {
      good = to_folder == folder;
      for (const std::string& who : {folder, path}) {
        const auto inside = allowed_inside().find(who);
        good = good || (inside != allowed_inside().end() &&
                        (inside->second.contains(to_folder) || inside->second.contains(include.path)));
      }
    }
    if (!good)
      complaints.push_back(path + ":" + std::to_string(include.line) + ": " + (to == part ? folder : part) +
                           " may not include palimpsest/" + include.path);
  }
  return complaints;
}

// A unit is a header with the source of the same name: "cache/pool". Units must not include each other, directly or
// indirectly.
using Units = std::map<std::string, std::set<std::string>>;

std::string unit_of(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

void add_unit(Units& units, const std::string& path, const std::string& text) {
  std::set<std::string>& to = units[unit_of(path)];
  for (const Include& include : includes_of(text))
    if (unit_of(include.path) != unit_of(path)) to.insert(unit_of(include.path));
}

// One complaint for each cycle that a depth-first search finds: "a -> b -> a".
Complaints cycle_complaints(const Units& units) {
  Complaints complaints;
  std::set<std::string> done;
  std::vector<std::string> way;
  const auto visit = [&](const auto& self, const std::string& unit) -> void {
    if (const auto at = std::find(way.begin(), way.end(), unit); at != way.end()) {
      std::string text;
      for (auto i = at; i != way.end(); ++i) text += *i + " -> ";
      complaints.push_back(text + unit);
      return;
    }
    const auto it = units.find(unit);
    if (it == units.end() || done.contains(unit)) return;
    way.push_back(unit);
    for (const std::string& to : it->second) self(self, to);
    way.pop_back();
    done.insert(unit);
  };
  for (const auto& [unit, to] : units) visit(visit, unit);
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

// Applies a rule to every source file below `folder`; returns the number of files.
template <typename Rule>
int complain(const fs::path& folder, Rule rule, Complaints& all) {
  int files = 0;
  if (!fs::exists(folder)) return 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    ++files;
    const auto complaints = rule(fs::relative(entry.path(), folder).generic_string(), file_content(entry.path()));
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

TEST(IncludeOrder, FoldersOfAPartSeeWhatIsStated) {
  const auto complaints = include_complaints("graph/device/portable.cpp",
                                             "#include \"palimpsest/graph/graph.h\"\n"
                                             "#include \"palimpsest/graph/step.h\"\n"
                                             "#include \"palimpsest/graph/cpu/attention_op.h\"\n");
  ASSERT_EQ(complaints.size(), 1u);
  EXPECT_EQ(complaints[0],
            "graph/device/portable.cpp:3: graph/device may not include palimpsest/graph/cpu/attention_op.h");
  EXPECT_TRUE(include_complaints("graph/decoder.cpp", "#include \"palimpsest/graph/cpu/attention_op.h\"\n").empty());
  EXPECT_EQ(include_complaints("graph/decoder.h", "#include \"palimpsest/graph/cpu/attention_op.h\"\n").size(), 1u);
}

TEST(IncludeCycles, AreNotInTheTree) {
  Units units;
  Complaints none;
  EXPECT_GT(complain(
                source_dir() / "src" / "palimpsest",
                [&](const std::string& path, const std::string& text) {
                  add_unit(units, path, text);
                  return Complaints{};
                },
                none),
            0);
  const auto complaints = cycle_complaints(units);
  EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(IncludeCycles, AreFoundThroughSourcesAndOtherUnits) {
  Units units;
  add_unit(units, "graph/decoder.h", "#include \"palimpsest/model/model.h\"\n");
  add_unit(units, "graph/decoder.cpp",
           "#include \"palimpsest/graph/decoder.h\"\n#include \"palimpsest/graph/path.h\"\n");
  add_unit(units, "graph/path.h", "#include \"palimpsest/graph/step.h\"\n");
  EXPECT_TRUE(cycle_complaints(units).empty());
  add_unit(units, "graph/step.h", "#include \"palimpsest/graph/decoder.h\"\n");
  const auto complaints = cycle_complaints(units);
  ASSERT_EQ(complaints.size(), 1u);
  EXPECT_EQ(complaints[0], "graph/decoder -> graph/path -> graph/step -> graph/decoder");
}

TEST(FileLength, HoldsInTheTree) {
  Complaints complaints;
  int files = 0;
  for (const char* folder : {"src", "apps", "tests", "research"})
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
