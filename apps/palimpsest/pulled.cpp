// palimpsest list, palimpsest rm: the pulled models, and those that can be pulled.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/download.h"
#include "palimpsest/hub/models.h"
#include "palimpsest/options.h"
#include "palimpsest/text/visible_text.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kListFooter = R"(Examples:
  palimpsest list
  palimpsest list --json)";

constexpr const char* kRemoveFooter =
    R"(Removes the model's folder, with the files that were made for it (MODEL.profile, MODEL.centres, ...), and what
an interrupted pull left. Files in Hugging Face's cache stay.

Examples:
  palimpsest rm smollm2
  palimpsest rm hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M)";

bool is_pulled(const CatalogueEntry& entry) {
  for (const auto& folder : folders_of(std::string(entry.name)))
    if (pulled_model(folder)) return true;
  return false;
}

nlohmann::ordered_json list_as_json() {
  nlohmann::ordered_json out = {{"folder", models_folder().string()},
                                {"models", nlohmann::ordered_json::array()},
                                {"catalogue", nlohmann::ordered_json::array()}};
  for (const PulledModel& model : pulled_models())
    out["models"].push_back({{"name", model.record.name},
                             {"path", model.path().string()},
                             {"bytes", model.record.bytes()},
                             {"sha256", model.record.files.front().sha256},
                             {"licence", model.record.licence},
                             {"source", model.record.source}});
  for (const CatalogueEntry& entry : catalogue()) {
    nlohmann::ordered_json row = {{"name", entry.name},
                                  {"title", entry.title},
                                  {"purpose", entry.purpose},
                                  {"licence", entry.licence},
                                  {"licence_url", entry.licence_url},
                                  {"pulled", is_pulled(entry)}};
    if (!entry.hub.empty()) row["hub"] = "hf:" + std::string(entry.hub);
    for (const WheelMember& wheel : entry.wheels)
      row["packages"].push_back(fmt::format("{}=={}", wheel.package, wheel.version));
    if (entry.size != 0) row["bytes"] = entry.size;
    if (!entry.sha256.empty()) row["sha256"] = entry.sha256;
    out["catalogue"].push_back(row);
  }
  return out;
}

int list(bool json) {
  if (json) {
    fmt::print("{}\n", list_as_json().dump(2));
    return kOk;
  }
  const auto models = pulled_models();
  std::size_t width = 4;
  for (const PulledModel& model : models) width = std::max(width, model.record.name.size());
  for (const CatalogueEntry& entry : catalogue()) width = std::max(width, entry.name.size());
  fmt::print("Pulled, in {}:\n", models_folder().string());
  for (const PulledModel& model : models)
    fmt::print("  {:{}}  {:>9}  {}\n", visible_text(model.record.name), width, decimal_bytes(model.record.bytes()),
               visible_text(model.record.licence));
  if (models.empty()) fmt::print("  none\n");
  for (const PartOfModel& part : incomplete_models())
    fmt::print("  {:{}}  {:>9}  incomplete: pull it again, or remove it with rm\n", part.name, width,
               decimal_bytes(part.bytes));
  fmt::print("To be pulled (palimpsest pull NAME):\n");
  for (const CatalogueEntry& entry : catalogue())
    if (!is_pulled(entry))
      fmt::print("  {:{}}  {:>9}  {}, {}\n", entry.name, width, entry.size == 0 ? "" : decimal_bytes(entry.size),
                 fmt::format("{}: {}", entry.title, entry.purpose), entry.licence);
  return kOk;
}

}  // namespace

void add_pulled(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("list", "List the pulled models, and those that can be pulled");
  command->footer(kListFooter);
  const auto json = std::make_shared<bool>(false);
  add_json_flag(*command, *json);
  command->callback([&action, json] { action = [json] { return list(*json); }; });

  CLI::App* remove = app.add_subcommand("rm", "Remove a pulled model");
  remove->footer(kRemoveFooter);
  const auto name = std::make_shared<std::string>();
  remove->add_option("MODEL", *name, "name of a pulled model")->type_name("MODEL")->required();
  remove->callback([&action, name] {
    action = [name] {
      fmt::print(stderr, "palimpsest: removed {}, {}\n", *name, decimal_bytes(remove_model(*name)));
      return kOk;
    };
  });
}

}  // namespace palimpsest::cli
