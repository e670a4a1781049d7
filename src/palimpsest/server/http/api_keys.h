// The API keys that clients may send.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

// One key a line; empty lines and spaces around a key are left out. Throws Error if the file cannot be read or has
// none.
std::vector<std::string> read_api_keys(const std::string& path);

// Number of the request's API key, from 1; 0: none of them. If two headers have keys, that of `Authorization` counts.
int number_of_key(const httplib::Request& in, const std::vector<std::string>& keys);

}  // namespace palimpsest
