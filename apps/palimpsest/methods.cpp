// palimpsest methods: lists the library's methods and policies.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/help.h"
#include "palimpsest/methods_table.h"
#include "palimpsest/options.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::cli {
namespace {

std::string footer() {
  std::string out = "Syntax: NAME or NAME:key=value,key=value. Keys:\n";
  for (const MethodKey& key : method_keys())
    out += fmt::format("  {:14}  {:12}  {}\n", key.name, key.values, key.meaning);
  return out + R"(
Examples:
  palimpsest methods
  palimpsest methods --budget 1024 -m model.gguf
  palimpsest run --method streaming:budget=512,sinks=4,every=64
  palimpsest run --method h2o --budget 512 --positions cache)";
}

struct MethodsFlags {
  ModelFlags model;
  std::optional<std::string> budget;
  bool json = false;
};

int list_methods(const MethodsFlags& flags) {
  std::shared_ptr<Model> model;
  if (!flags.model.synthetic.empty() || known_model(flags.model)) {
    ModelFlags shape = flags.model;
    shape.options.repack = false;  // nothing is computed here
    model = load_model(shape);
  }
  const nlohmann::ordered_json rows = methods_table(flags.budget, model.get());
  if (flags.json) {
    nlohmann::ordered_json out = {{"methods", rows}};
    if (model != nullptr) out["model"] = model->path().empty() ? model->hyper().name : model->path();
    for (const PolicyEntry& entry : policies())
      out["policies"].push_back({{"name", entry.name}, {"summary", entry.summary}});
    for (const MethodKey& key : method_keys())
      out["keys"].push_back({{"name", key.name}, {"values", key.values}, {"meaning", key.meaning}});
    fmt::print("{}\n", out.dump(2));
    return kOk;
  }
  print_methods_table(rows);
  if (model != nullptr)
    fmt::print(
        "\nEvicts, prompt: at the end of the prompt. Memory: keys and values (f16) and tables of one sequence; +: "
        "grows with\nthe text, value at the trained context.\n");
  fmt::print("\nMethods and their options (--method NAME)\n");
  for (const auto& row : rows) {
    fmt::print("{}", help_row(row["name"], row["summary"]));
    for (std::string changes = row["changes"]; !changes.empty();) {  // the options have no spaces to break lines at
      constexpr std::size_t kWidth = 80;
      const std::size_t end = changes.size() <= kWidth ? changes.size() : changes.rfind(',', kWidth) + 1;
      fmt::print("{}", help_row("", changes.substr(0, end)));
      changes.erase(0, end);
    }
  }
  fmt::print("\nPolicies (--policy NAME)\n{}", help_row("none", "no eviction"));
  for (const PolicyEntry& entry : policies())
    fmt::print("{}", help_row(std::string(entry.name), std::string(entry.summary)));
  return kOk;
}

}  // namespace

void add_methods(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("methods", "List the eviction methods and policies");
  command->footer(footer());
  const auto flags = std::make_shared<MethodsFlags>();
  add_model_flags(*command, flags->model);
  command->add_option("--budget", flags->budget, "budget of each method, for the memory column")
      ->type_name("TOKENS|256MiB")
      ->default_str("the method's")
      ->group("Cache");
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return list_methods(*flags); }; });
}

}  // namespace palimpsest::cli
