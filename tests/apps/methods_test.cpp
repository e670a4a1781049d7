// palimpsest methods, and docs/methods.md, which is generated from its output:
//
//   PALIMPSEST_UPDATE_DOCS=1 build/test_apps --gtest_filter='Methods.*'     regenerates it
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::filesystem::path kModel = std::filesystem::path(default_model());

Json listed(const Words& flags) {
  Words words = {"methods", "--json"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Finished done = command(words);
  EXPECT_EQ(done.code, 0) << done.err;
  return Json::parse(done.out);
}

Json row_of(const Json& list, const std::string& name) {
  const auto& rows = list["methods"];
  const auto found = std::ranges::find_if(rows, [&](const Json& row) { return row["name"] == name; });
  return found == rows.end() ? Json() : *found;
}

std::string text(const Json& value) {
  std::string out = value.get<std::string>();
  for (std::size_t bar = 0; (bar = out.find('|', bar)) != std::string::npos; bar += 2) out.insert(bar, "\\");
  return out;
}

std::string kib(const Json& bytes) {
  return fmt::format("{:.1f} KiB", bytes.get<double>() / 1024);
}

std::string paper(const Json& row) {
  const std::string name = text(row["paper"]), arxiv = "arXiv ";
  return name.starts_with(arxiv) ? fmt::format("[{0}](https://arxiv.org/abs/{0})", name.substr(arxiv.size())) : name;
}

std::string page() {
  const Json list = listed({"-m", kModel.string(), "--budget", "256"});
  std::string out =
      "# Methods\n\nGenerated from `palimpsest methods --json --budget 256`; `tests/apps/methods_test.cpp` checks that "
      "it is current and says how to\nregenerate it. A method is a set of independent options; the keys are listed "
      "below.\n\n*Needs*: inputs of the policy, which determine its cost. `attention of N`: weights of the last N "
      "queries; `+all`: of all queries; `new keys`: keys of\ninserted tokens only (`new kv`: keys and values); `all "
      "keys`: keys of "
      "the whole cache at each eviction. *Evicts*, `prompt`: at the end of the prompt. *Memory*: keys, values "
      "(f16)\nand tables of one sequence with a "
      "budget of 256 in the default model; for caches that grow, at the given number of tokens.\n\n| method | paper | "
      "needs | evicts | mechanism | positions | memory |\n|---|---|---|---|---|---|---|\n";
  for (const Json& row : list["methods"]) {
    EXPECT_FALSE(row.contains("error")) << row;
    const Json& memory = row["memory"];
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {}{} |\n", text(row["name"]), paper(row), text(row["needs"]),
                       text(row["acts"]), text(row["mechanism"]), text(row["positions"]), kib(memory["bytes"]),
                       memory["bounded"].get<bool>() ? "" : fmt::format(" at {}", memory["tokens"].get<int>()));
  }
  out += "\n## Presets\n\n| method | description | options |\n|---|---|---|\n";
  for (const Json& row : list["methods"]) {
    const std::string changes = text(row["changes"]);
    out += fmt::format("| `{}` | {} | {} |\n", text(row["name"]), text(row["summary"]),
                       changes.empty() ? "" : fmt::format("`{}`", changes));
  }
  out +=
      "\n## Policies\n\nA policy ranks the tokens for eviction (`--policy NAME`). To add one: "
      "[write-a-policy.md](write-a-policy.md).\n\n";
  out += "| policy | keeps |\n|---|---|\n| `none` | everything |\n";
  for (const Json& policy : list["policies"])
    out += fmt::format("| `{}` | {} |\n", text(policy["name"]), text(policy["summary"]));
  out += "\n## Keys\n\n`--method NAME:key=value,key=value`\n\n| key | value | meaning |\n|---|---|---|\n";
  for (const Json& key : list["keys"])
    out += fmt::format("| `{}` | {} | {} |\n", text(key["name"]), text(key["values"]), text(key["meaning"]));
  return out;
}

TEST(Methods, ThePageInTheDocsIsCurrent) {
  const std::string now = page();
  const auto path = source_dir() / "docs" / "methods.md";
  if (std::getenv("PALIMPSEST_UPDATE_DOCS") != nullptr) std::ofstream(path) << now;
  EXPECT_EQ(file_content(path), now) << "methods changed: regenerate docs/methods.md (see the head of this file)";
}

TEST(Methods, SayWhatTheyNeedAndWhenTheyAct) {
  const Json list = listed({"-m", kModel.string(), "--budget", "512"});
  const Json streaming = row_of(list, "streaming"), snapkv = row_of(list, "snapkv"), full = row_of(list, "full");
  EXPECT_EQ(streaming["needs"], "positions");
  EXPECT_EQ(streaming["acts"], "every token");
  EXPECT_EQ(snapkv["needs"], "attention of 32");
  EXPECT_EQ(snapkv["acts"], "prompt");
  EXPECT_EQ(row_of(list, "knorm")["needs"], "new keys");
  EXPECT_EQ(row_of(list, "keydiff")["needs"], "all keys");
  EXPECT_EQ(row_of(list, "lazy")["acts"], "every 64 tokens");
  EXPECT_EQ(full["needs"], "nothing");
  EXPECT_EQ(full["acts"], "never");
  EXPECT_FALSE(full["memory"]["bounded"].get<bool>());
  EXPECT_EQ(full["memory"]["tokens"], 2048);  // the model's context
  EXPECT_NE(streaming["method"].get<std::string>().find("budget=512"), std::string::npos);
  EXPECT_GE(list["policies"].size(), 10u);
  EXPECT_GE(list["keys"].size(), 10u);
}

// The memory of a budget equals that of `info --cache`, term by term.
TEST(Methods, MemoryIsThatOfInfo) {
  const Json list = listed({"-m", kModel.string(), "--budget", "200"});
  for (const char* name : {"streaming", "h2o", "tova", "lazy"}) {
    const Finished info =
        command({"info", "-m", kModel.string(), "--cache", "--json", "--method", name, "--budget", "200"});
    const Json terms = Json::parse(info.out)["cache"]["footprint"]["writing"];
    EXPECT_EQ(row_of(list, name)["memory"]["bytes"], terms["bytes"]) << name;
  }
}

TEST(Methods, ABudgetThatIsTooSmallForOneIsSaidBesideIt) {
  const Json list = listed({"-m", kModel.string(), "--budget", "16"});
  EXPECT_TRUE(row_of(list, "streaming").contains("memory"));
  EXPECT_NE(row_of(list, "random")["error"].get<std::string>().find("raise it to at least 37"), std::string::npos);
  expect_refused({"methods", "--budget", "many"}, "budget");
  expect_refused({"methods", "-m", "no-such.gguf"}, "no-such.gguf");
}

TEST(Methods, AMissingFileIsSaidBesideTheMethod) {
  const fs::path path = own_file("bare.gguf");
  fs::copy_file(kModel, path, fs::copy_options::overwrite_existing);
  const Json list = listed({"-m", path.string()});
  for (const char* name : {"kvzap", "temporal", "learned", "duo", "triattention"}) {
    ASSERT_TRUE(row_of(list, name).contains("error")) << name;
    const std::string why = row_of(list, name)["error"];
    EXPECT_NE(why.find("beside the model"), std::string::npos) << why;
    EXPECT_NE(why.find("`palimpsest fit -m MODEL`"), std::string::npos) << why;
  }
  EXPECT_FALSE(row_of(list, "h2o").contains("error"));
  const std::string file = fs::path(path).replace_extension(".kvzap").filename().string();
  const std::string out = command({"methods", "-m", path.string()}).out;
  EXPECT_NE(out.find("\nkvzap: policy kvzap needs " + file + " beside the model: "), std::string::npos) << out;
  fs::remove(path);
}

TEST(Methods, FitATerminal) {
  const Finished done = command({"methods", "-m", kModel.string(), "--budget", "256"});
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* part : {"full", "streaming", "recent", "2309.17453", "KiB", "Policies"})
    EXPECT_NE(done.out.find(part), std::string::npos) << part;
  std::istringstream lines(done.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

}  // namespace
}  // namespace palimpsest::testing
