#include "palimpsest/hub/hf_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "palimpsest/hub/hub_files.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

fs::path set_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

fs::path hf_home() {
  if (fs::path home = set_path("HF_HOME"); !home.empty()) return home;
  if (const fs::path cache = set_path("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface";
  const fs::path home = set_path("HOME");
  return home.empty() ? home : home / ".cache" / "huggingface";
}

fs::path repository_folder(const HubName& name) {
  fs::path cache = set_path("HF_HUB_CACHE");
  if (cache.empty() && !hf_home().empty()) cache = hf_home() / "hub";
  return cache.empty() ? cache : cache / fmt::format("models--{}--{}", name.user, name.repo);
}

std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

}  // namespace

std::string hf_token() {
  if (const char* token = std::getenv("HF_TOKEN"); token != nullptr && *token != '\0') return token;
  fs::path file = set_path("HF_TOKEN_PATH");
  if (file.empty() && !hf_home().empty()) file = hf_home() / "token";
  return file.empty() ? "" : first_word(file);
}

std::optional<fs::path> blob_in_hf_cache(const HubName& name, const std::string& sha256, std::uint64_t size) {
  const fs::path folder = repository_folder(name);
  if (folder.empty() || sha256.size() != 64) return std::nullopt;
  std::error_code error;
  fs::path blob = fs::absolute(folder / "blobs" / sha256, error);
  if (error || fs::file_size(blob, error) != size || error) return std::nullopt;
  return blob;
}

std::optional<fs::path> model_in_hf_cache(const HubName& name) {
  const fs::path folder = repository_folder(name);
  if (folder.empty()) return std::nullopt;
  const std::string commit = first_word(folder / "refs" / "main");
  if (!is_safe_file_name(commit)) return std::nullopt;
  const fs::path snapshot = folder / "snapshots" / commit;
  std::vector<HubFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(snapshot, error), end; !error && at != end; at.increment(error)) {
    std::error_code missing;
    const auto size = fs::file_size(at->path(), missing);
    if (!missing) files.push_back({at->path().lexically_relative(snapshot).generic_string(), size, {}});
  }
  const auto chosen = choose_files(files, name.tag);
  if (chosen.empty()) return std::nullopt;
  return snapshot / chosen.front().path;
}

}  // namespace palimpsest
