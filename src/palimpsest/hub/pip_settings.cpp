#include "palimpsest/hub/pip_settings.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Those that hold most first.
std::vector<fs::path> pip_files() {
  if (const std::string one = env("PIP_CONFIG_FILE"); !one.empty()) return {one};  // /dev/null: none
  std::vector<fs::path> files;
  if (const std::string folder = env("VIRTUAL_ENV"); !folder.empty()) files.push_back(fs::path(folder) / "pip.conf");
  const std::string home = env("HOME"), config = env("XDG_CONFIG_HOME");
  if (!config.empty())
    files.push_back(fs::path(config) / "pip" / "pip.conf");
  else if (!home.empty())
    files.push_back(fs::path(home) / ".config" / "pip" / "pip.conf");
  if (!home.empty()) files.push_back(fs::path(home) / ".pip" / "pip.conf");
  files.emplace_back("/etc/pip.conf");
  files.emplace_back("/etc/xdg/pip/pip.conf");
  return files;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string pip_value(std::string_view file, std::string_view key) {
  std::string global, download;
  std::string_view section;
  while (!file.empty()) {
    const std::size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = trimmed(file.substr(0, end));
    file.remove_prefix(std::min(file.size(), end + 1));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      section = line.substr(1, line.find(']') - 1);
      continue;
    }
    const auto split = line.find_first_of("=:");
    if (split == line.npos) continue;
    std::string name(trimmed(line.substr(0, split)));
    for (char& c : name)
      if (c == '_') c = '-';
    if (name != key) continue;
    if (section == "global") global = trimmed(line.substr(split + 1));
    if (section == "download") download = trimmed(line.substr(split + 1));
  }
  return download.empty() ? global : download;
}

PipSettings pip_settings() {
  PipSettings out{.index_url = env("PIP_INDEX_URL"), .cert = env("PIP_CERT")};
  for (const fs::path& path : pip_files()) {
    if (!out.index_url.empty() && !out.cert.empty()) break;
    const std::string text = text_of(path);
    if (out.index_url.empty()) out.index_url = pip_value(text, "index-url");
    if (out.cert.empty()) out.cert = pip_value(text, "cert");
  }
  if (out.index_url.empty()) out.index_url = "https://pypi.org/simple";
  std::error_code ignored;
  if (!fs::exists(out.cert, ignored)) out.cert.clear();
  return out;
}

}  // namespace palimpsest
