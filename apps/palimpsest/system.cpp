#include "palimpsest/system.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest::cli {

std::string read_text(const std::string& path, const std::string& what) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : fmt::format("{} '{}'", what, path);
  const auto close = [](std::FILE* file) { return file == stdin ? 0 : std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(standard ? stdin : std::fopen(path.c_str(), "rb"), close);
  if (!file) fail("{} cannot be opened: {}", name, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) text.append(buffer, n);
  if (std::ferror(file.get())) fail("{} cannot be read: {}", name, std::strerror(errno));
  if (const auto offset = invalid_utf8(text))
    fail("{} is not valid UTF-8 at byte {} (0x{:02X}): convert it first, as with `iconv -t UTF-8`", name, *offset,
         static_cast<unsigned char>(text[*offset]));
  return text;
}

std::string human_bytes(std::size_t bytes) {
  double value = static_cast<double>(bytes);
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, units[unit]);
}

}  // namespace palimpsest::cli
