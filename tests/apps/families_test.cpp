// palimpsest info --families, and docs/families.md, which is generated from its output and from the methods that plan
// or refuse a small model of each family:
//
//   PALIMPSEST_UPDATE_DOCS=1 build/test_apps --gtest_filter='Families.*'     regenerates it
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Words& words) {
  const Finished done = command(words);
  EXPECT_EQ(done.code, 0) << done.err;
  return Json::parse(done.out);
}

// Presets that refuse the family. `duo` needs a list of a model's heads, whatever the family.
std::string refused_methods(const std::string& architecture) {
  const Json list = json_of({"methods", "--json", "--synthetic", "tiny-" + architecture});
  std::vector<std::string> names;
  for (const Json& row : list["methods"])
    if (row.contains("error") && row["name"] != "duo")
      names.push_back(fmt::format("`{}`", row["name"].get<std::string>()));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string families_page() {
  std::string out =
      "# Model families\n\nGenerated from `palimpsest info --families --json`; `tests/apps/families_test.cpp` checks "
      "that "
      "it is current, and that the methods in the\nfifth column, and no others, refuse a small model of the family. "
      "*Checked against*: the reference of `tests/graph`'s logits of a random model with\nall features of the family "
      "(figures: [research/results/families.md](../research/results/families.md)). Every family is also in the random "
      "draws of "
      "`tests/exactness`.\n\n| architecture | models | features | checked against | methods refused | not supported "
      "|\n|---|---|---|---|---|---|\n";
  const Json list = json_of({"info", "--families", "--json"});
  for (const Json& row : list["families"]) {
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", text("architecture"), text("models"), text("features"),
                       text("checked_against"), refused_methods(text("architecture")), text("limits"));
  }
  std::vector<std::string> encoders;
  for (const Json& each : list["encoders"]) encoders.push_back(fmt::format("`{}`", each.get<std::string>()));
  out += fmt::format(
      "\n## Encoders\n\nThey have no KV cache and no methods: `palimpsest serve` answers `/v1/embeddings` and "
      "`/v1/rerank` with them, run by\nlibllama ([server.md](server.md#encoders)): {}. So does a file of any "
      "architecture whose pooling is `rank`. `bert` is\nchecked against plain loops in double precision, "
      "the others but `llama-embed` against libllama's own API, one text at a time (`tests/encoder`).\n",
      fmt::join(encoders, ", "));
  out +=
      "\n## Not supported\n\nOther architectures of libllama 0.7.0. The program's error says the same.\n\n"
      "| architecture | why |\n|---|---|\n";
  for (const Json& each : list["refused"])
    out += fmt::format("| `{}` | {} |\n", each["architecture"].get<std::string>(), each["why"].get<std::string>());
  return out;
}

TEST(Families, ThePageInTheDocsIsCurrent) {
  const std::string now = families_page();
  const auto path = source_dir() / "docs" / "families.md";
  if (std::getenv("PALIMPSEST_UPDATE_DOCS") != nullptr) std::ofstream(path) << now;
  EXPECT_EQ(file_content(path), now) << "families changed: regenerate docs/families.md (see the head of this file)";
}

}  // namespace
}  // namespace palimpsest::testing
