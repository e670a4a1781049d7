// The API keys that clients may send.
#pragma once

#include <string>
#include <vector>

namespace palimpsest {

// One key a line; empty lines and spaces around a key are left out. Throws Error if the file cannot be read or has
// none.
std::vector<std::string> read_api_keys(const std::string& path);

}  // namespace palimpsest
