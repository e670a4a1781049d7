// The help texts, and docs/cli.md, which is generated from them:
//
//   PALIMPSEST_UPDATE_DOCS=1 build/test_apps --gtest_filter='Help.*'     regenerates it
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

struct Page {
  Words words;  // {} or {"eval", "perplexity"}
  std::string help;
};

// The words below "Commands".
Words commands_in(const std::string& help) {
  Words names;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) inside = false;
    if (inside && line.size() > 2 && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (line == "Commands") inside = true;
  }
  return names;
}

void collect(const Words& words, std::vector<Page>& pages) {
  Words asked = words;
  asked.push_back("--help");
  const Finished done = command(asked);
  ASSERT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(done.err, "");
  pages.push_back({words, done.out});
  for (const std::string& name : commands_in(done.out)) {
    Words below = words;
    below.push_back(name);
    collect(below, pages);
  }
}

std::vector<Page> all_pages() {
  std::vector<Page> pages;
  collect({}, pages);
  return pages;
}

std::string title(const Page& page) {
  std::string out = "palimpsest";
  for (const std::string& word : page.words) out += " " + word;
  return out;
}

TEST(Help, EveryCommandExplainsItself) {
  const auto pages = all_pages();
  std::string titles;
  for (const Page& page : pages) titles += title(page) + "\n";
  for (const char* name :
       {"run", "chat", "serve", "info", "methods", "eval perplexity", "bench decode", "bench prefill"})
    EXPECT_NE(titles.find(std::string("palimpsest ") + name + "\n"), std::string::npos) << titles;
  for (const Page& page : pages) {
    SCOPED_TRACE(title(page));
    EXPECT_NE(page.help.find("\nUsage: " + title(page)), std::string::npos) << page.help;
    EXPECT_NE(page.help.find("-h, --help"), std::string::npos);
    if (commands_in(page.help).empty()) {
      EXPECT_NE(page.help.find("\nExamples:\n"), std::string::npos) << page.help;
    }
    std::istringstream lines(page.help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
  }
}

// A command that needs a vocabulary refuses --synthetic: its help does not offer it.
TEST(Help, OffersNoModelThatTheCommandRefuses) {
  for (const Page& page : all_pages()) {
    if (page.help.find("--model FILE") == std::string::npos) continue;
    SCOPED_TRACE(title(page));
    const bool offered = page.help.find("--synthetic SHAPE") != std::string::npos;
    const bool needs_vocabulary = page.words == Words{"bench", "methods"};
    if (!page.words.empty() && !needs_vocabulary &&
        (page.words[0] == "info" || page.words[0] == "bench" || page.words[0] == "methods" || page.words[0] == "plan" ||
         page.words == Words{"eval", "stream"}))
      EXPECT_TRUE(offered);
    else
      EXPECT_FALSE(offered);
  }
}

TEST(Help, TheReferenceInTheDocsIsCurrent) {
  std::string text =
      "# Command line\n\nGenerated from the `--help` texts; `tests/apps/help_test.cpp` checks that it is current and "
      "says how to regenerate it.\n";
  const auto pages = all_pages();
  text += "\n| to | command |\n|---|---|\n";
  for (const Page& page : pages) {
    std::string task = page.help.substr(0, page.help.find('\n')), anchor = title(page);
    std::ranges::replace(anchor, ' ', '-');
    if (page.words.empty()) task = "See all commands";
    text += "| " + task + " | [" + title(page) + "](#" + anchor + ") |\n";
  }
  for (const Page& page : pages) text += "\n## " + title(page) + "\n\n```text\n" + page.help + "```\n";
  const auto path = source_dir() / "docs" / "cli.md";
  if (std::getenv("PALIMPSEST_UPDATE_DOCS") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(file_content(path), text) << "flags changed: regenerate docs/cli.md (see the head of this file)";
}

TEST(Docs, EveryDecisionIsListed) {
  const auto folder = source_dir() / "docs" / "decisions";
  const std::string list = file_content(folder / "README.md");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string(), text = file_content(entry.path());
    if (name == "README.md") continue;
    const auto colon = text.find(": ");
    const std::string title = text.substr(colon + 2, text.find('\n') - colon - 2);
    EXPECT_NE(list.find("[" + name.substr(0, 4) + "](" + name + "): " + title + "\n"), std::string::npos) << name;
  }
}

// The C++ example of docs/install.md is part of a program that the build compiles.
TEST(Readme, ItsExampleIsTheOneThatIsBuilt) {
  const std::string readme = file_content(source_dir() / "docs/install.md"),
                    example = file_content(source_dir() / "examples" / "stream.cpp");
  const auto begin = readme.find("```cpp\n");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(readme.substr(begin + 7, readme.find("```\n", begin + 7) - begin - 7));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_NE(example.find((line.empty() ? "" : "  ") + line + "\n"), std::string::npos) << line;
  EXPECT_GT(count, 8);
}

TEST(Version, IsPrinted) {
  const Finished done = command({"--version"});
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(done.out.starts_with("palimpsest 0.")) << done.out;
}

}  // namespace
}  // namespace palimpsest::testing
