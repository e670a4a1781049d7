#include "palimpsest/default_model.h"

#include <cstdlib>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace palimpsest::cli {

namespace fs = std::filesystem;

fs::path this_program() {
  // Set by a script that starts the program by a dynamic linker of its own (packages/tarball.sh): the system would
  // name that.
  if (const char* script = std::getenv("PALIMPSEST_PROGRAM"); script != nullptr && *script != '\0') return script;
  std::error_code ignored;
#ifdef __APPLE__
  char buffer[4096];
  std::uint32_t size = sizeof buffer;
  const fs::path program = _NSGetExecutablePath(buffer, &size) == 0 ? fs::canonical(buffer, ignored) : fs::path();
#else
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
#endif
  return program;
}

std::vector<fs::path> default_model_places() {
  const fs::path folder = this_program().parent_path();
  if (folder.empty()) return {};
  return {(folder.parent_path() / "models" / kDefaultModel),
          (folder.parent_path() / "share" / "palimpsest" / "models" / kDefaultModel)};
}

std::optional<fs::path> default_model() {
  std::error_code ignored;
  for (const fs::path& path : default_model_places())
    if (fs::is_regular_file(path, ignored)) return path;
  return std::nullopt;
}

}  // namespace palimpsest::cli
