#include "palimpsest/hub/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/download.h"
#include "palimpsest/hub/hf_cache.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

// A short name of a model of the hub stands for its long one.
std::string long_name(const std::string& text) {
  const CatalogueEntry* entry = find_in_catalogue(text);
  return entry == nullptr || entry->hub.empty() ? text : parse_hub_name(entry->hub).spelled();
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Where no quantisation is named: as for a repository (hub/hub_files.h).
int rank(const fs::path& folder) {
  const std::string key = folder.filename().string();
  return key.ends_with("--Q4_K_M") ? 0 : key.ends_with("--Q8_0") ? 1 : 2;
}

std::vector<fs::path> hub_folders(const HubName& name) {
  const std::string begin = lower_case(key_of_hub(name.user, name.repo, name.tag));
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models_folder_if_known().value_or(fs::path()), error)) {
    const std::string key = lower_case(entry.path().filename().string());
    if (name.tag.empty() ? key.starts_with(begin) : key == begin) out.push_back(entry.path());
  }
  std::ranges::sort(out, {}, [](const fs::path& path) { return std::pair(rank(path), path); });
  return out;
}

std::string pull_command(const std::string& name) {
  const CatalogueEntry* entry = find_in_catalogue(name);
  const std::string size = entry == nullptr || entry->size == 0 ? "" : " (" + decimal_bytes(entry->size) + ")";
  return fmt::format("`palimpsest pull {}` fetches it{}", name, size);
}

}  // namespace

std::vector<fs::path> folders_of(const std::string& text) {
  const std::string name = long_name(text);
  if (is_hub_name(name)) return hub_folders(parse_hub_name(name));
  const std::string key = lower_case(name);
  const auto all = models_folder_if_known();
  if (!all || !is_safe_file_name(key)) return {};
  fs::path folder = *all / key;
  if (!is_folder(folder)) return {};
  return {std::move(folder)};
}

std::optional<fs::path> find_model(const std::string& text) {
  std::error_code ignored;
  if (fs::exists(text, ignored) && !is_folder(text)) return text;
  for (const fs::path& folder : folders_of(text))
    if (const auto model = pulled_model(folder)) return model->path();
  if (const std::string name = long_name(text); is_hub_name(name)) return model_in_hf_cache(parse_hub_name(name));
  return std::nullopt;
}

std::string resolve_model(const std::string& text) {
  if (const auto path = find_model(text)) return path->string();
  if (is_address(text)) fail("{} is an address: `palimpsest pull {}` fetches it", text, text);
  if (is_hub_name(text) || find_in_catalogue(text) != nullptr)
    fail("{} is not on this machine: {}", text, pull_command(text));
  if (text.find('/') != text.npos || lower_case(text).ends_with(".gguf")) return text;
  if (!folders_of(text).empty())
    fail("{} is not complete: pull it again, or remove it with `palimpsest rm {}`", text, text);
  std::vector<std::string> known;
  for (const CatalogueEntry& entry : catalogue()) known.emplace_back(entry.name);
  for (const PulledModel& model : pulled_models()) known.push_back(model.record.name);
  const std::string near = did_you_mean(text, known);
  fail("'{}' is neither a file nor the name of a model{}", text,
       near.empty() ? ": `palimpsest list` lists the names" : near);
}

std::uint64_t remove_model(const std::string& text) {
  const auto folders = folders_of(text);
  if (folders.empty()) {
    std::vector<std::string> known;
    for (const PulledModel& model : pulled_models()) known.push_back(model.record.name);
    const std::string near = did_you_mean(text, known);
    fail("no model '{}' was pulled{}", text, near.empty() ? ": `palimpsest list` lists those that were" : near);
  }
  if (folders.size() > 1) {
    std::vector<std::string> names;
    for (const fs::path& folder : folders)
      if (const auto model = pulled_model(folder)) names.push_back(model->record.name);
    fail("{} is several models: name one of {}", text, fmt::join(names, ", "));
  }
  const fs::path& folder = folders.front();
  const ModelLock lock(folder.filename().string());
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code missing;
    const auto size = entry.is_symlink(missing) ? 0 : entry.file_size(missing);
    if (!missing) bytes += size;
  }
  // In two steps, so that nobody finds half of it.
  const fs::path aside = folder.parent_path() / (".removed-" + folder.filename().string());
  fs::remove_all(aside, error);
  fs::rename(folder, aside, error);
  if (!error) fs::remove_all(aside, error);
  if (error) fail("{}: cannot be removed: {}: check the folder's permissions", folder.string(), error.message());
  return bytes;
}

}  // namespace palimpsest
