// What pip is configured for: the index, and the authorities that its certificate is checked with.
#pragma once

#include <string>
#include <string_view>

namespace palimpsest {

struct PipSettings {
  std::string index_url;  // of the simple API
  std::string cert;       // file; empty: the system's
};

// PIP_INDEX_URL and PIP_CERT, else pip's files (PIP_CONFIG_FILE, that of the virtual environment, of the user, of the
// machine), else https://pypi.org/simple.
PipSettings pip_settings();

// The value of a key in the sections [global] and [download] of such a file; empty: it has none.
std::string pip_value(std::string_view file, std::string_view key);

}  // namespace palimpsest
