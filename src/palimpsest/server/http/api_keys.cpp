#include "palimpsest/server/http/api_keys.h"

#include <fstream>

#include "palimpsest/core/error.h"

namespace palimpsest {

std::vector<std::string> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("{}: cannot be read: give a file with one API key a line", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    constexpr const char* kSpace = " \t\r";
    const std::size_t first = line.find_first_not_of(kSpace);
    if (first == std::string::npos) continue;
    keys.push_back(line.substr(first, line.find_last_not_of(kSpace) - first + 1));
  }
  if (keys.empty()) fail("{}: has no API key: give one a line", path);
  return keys;
}

}  // namespace palimpsest
