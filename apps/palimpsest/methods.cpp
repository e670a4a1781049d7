// palimpsest methods: the tables of methods and policies, as the library has them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/options.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::cli {
namespace {

std::string footer() {
  std::string out = "A method is written NAME or NAME:key=value,key=value. The keys:\n";
  for (const MethodKey& key : method_keys())
    out += fmt::format("  {:9}  {:12}  {}\n", key.name, key.values, key.meaning);
  return out + R"(
Examples:
  palimpsest methods
  palimpsest run --method streaming:budget=512,sinks=4,every=64
  palimpsest run --method h2o --budget 512 --positions cache)";
}

int print_json() {
  nlohmann::ordered_json out;
  for (const MethodRow& row : methods())
    out["methods"].push_back(
        {{"name", row.name}, {"paper", row.paper}, {"summary", row.summary}, {"method", spell_out(row.preset)}});
  for (const PolicyEntry& entry : policies())
    out["policies"].push_back({{"name", entry.name}, {"summary", entry.summary}});
  fmt::print("{}\n", out.dump(2));
  return kOk;
}

int print_tables() {
  std::size_t width = 0;
  for (const MethodRow& row : methods()) width = std::max(width, row.name.size());
  for (const PolicyEntry& entry : policies()) width = std::max(width, entry.name.size());
  fmt::print("Methods (presets; --method NAME)\n");
  for (const MethodRow& row : methods()) {
    fmt::print("  {:{}}  {}\n", row.name, width, row.summary);
    const std::string spelled = spell_short(row.preset);
    if (!spelled.empty()) fmt::print("  {:{}}  {}\n", "", width, spelled);
    if (row.paper != "-") fmt::print("  {:{}}  {}\n", "", width, row.paper);
  }
  fmt::print("\nPolicies (who leaves; --policy NAME)\n  {:{}}  nothing leaves\n", "none", width);
  for (const PolicyEntry& entry : policies()) fmt::print("  {:{}}  {}\n", entry.name, width, entry.summary);
  return kOk;
}

}  // namespace

void add_methods(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("methods", "List the methods and policies: who leaves the cache, how and when");
  command->footer(footer());
  const auto json = std::make_shared<bool>(false);
  add_json_flag(*command, *json);
  command->callback([&action, json] { action = [json] { return *json ? print_json() : print_tables(); }; });
}

}  // namespace palimpsest::cli
