#include "palimpsest/hub/models_dir.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "palimpsest/hub/models.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

// "tiny-00001-of-00003.gguf": the first of the parts that the loader reads. Others, and projectors, are no models.
bool is_model(const std::string& file) {
  if (!file.ends_with(".gguf") || file.starts_with("mmproj")) return false;
  const auto of = file.rfind("-of-");
  return of == std::string::npos || of < 6 || file.substr(of - 6, 6) == "-00001";
}

std::string name_without_part(std::string stem) {
  if (const auto part = stem.rfind("-00001-of-"); part != std::string::npos) stem.resize(part);
  return stem;
}

void add_model(std::map<std::string, ModelInFolder>& models, const std::string& name, const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (!error) models.try_emplace(name, ModelInFolder{.name = name, .path = path, .bytes = bytes});
}

}  // namespace

std::vector<ModelInFolder> models_in(const fs::path& folder) {
  std::map<std::string, ModelInFolder> models;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (const auto pulled = pulled_model(at->path())) {
      add_model(models, pulled->record.name, pulled->path());
    } else if (at->is_regular_file(ignored) && is_model(name)) {
      add_model(models, name_without_part(at->path().stem().string()), at->path());
    } else if (at->is_directory(ignored) && !name.starts_with('.')) {
      std::vector<fs::path> files;
      for (fs::directory_iterator in(at->path(), ignored), last; !ignored && in != last; in.increment(ignored))
        if (is_model(in->path().filename().string())) files.push_back(in->path());
      if (!files.empty()) add_model(models, name, *std::ranges::min_element(files));
    }
  }
  if (models_folder_if_known())
    for (const PulledModel& pulled : pulled_models()) add_model(models, pulled.record.name, pulled.path());
  std::vector<ModelInFolder> all;
  for (auto& [name, model] : models) all.push_back(std::move(model));
  return all;
}

}  // namespace palimpsest
