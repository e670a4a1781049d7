#include "tests/support/shared_dir.h"

#include <cstdlib>

namespace palimpsest::testing {

namespace fs = std::filesystem;

fs::path source_dir() {
  return PALIMPSEST_SOURCE_DIR;
}

std::optional<fs::path> shared_dir() {
  const char* set = std::getenv("PALIMPSEST_SHARED");
  const fs::path dir = set != nullptr && *set != '\0' ? fs::path(set) : source_dir().parent_path() / "shared";
  std::error_code ignored;
  return fs::is_directory(dir, ignored) ? std::optional(dir) : std::nullopt;
}

std::string default_model() {
  return (source_dir() / "models/palimpsest-stories.gguf").string();
}

std::optional<std::string> stories260k() {
  const auto shared = shared_dir();
  if (!shared) return std::nullopt;
  const fs::path path = *shared / "models/stories260K/stories260K.gguf";
  return fs::exists(path) ? std::optional(path.string()) : std::nullopt;
}

}  // namespace palimpsest::testing
