#include "palimpsest/server/http/api_keys.h"

#include <httplib.h>

#include <fstream>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// Constant-time comparison: does not reveal how many characters of a guessed key match.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  return differ == 0;
}

}  // namespace

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

int number_of_key(const httplib::Request& in, const std::vector<std::string>& keys) {
  const std::string bearer = in.get_header_value("Authorization"), plain = in.get_header_value("X-Api-Key");
  int of_bearer = 0, of_plain = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (equal_in_constant_time(bearer, "Bearer " + keys[i])) of_bearer = static_cast<int>(i) + 1;
    if (equal_in_constant_time(plain, keys[i])) of_plain = static_cast<int>(i) + 1;
  }
  return of_bearer != 0 ? of_bearer : of_plain;
}

}  // namespace palimpsest
