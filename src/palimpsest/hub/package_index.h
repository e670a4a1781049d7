// A package index with the simple API (PEP 503, PEP 691), such as PyPI or a mirror of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/hub/download.h"
#include "palimpsest/hub/pip_settings.h"

namespace palimpsest {

struct IndexFile {
  std::string name, url, sha256;  // url: as given, maybe relative; sha256: may be empty
  std::uint64_t size = 0;         // 0: not told
};

// An answer of the index, in JSON or HTML.
std::vector<IndexFile> parse_index(std::string_view text, std::string_view content_type);

// The wheel of a package's version. Throws Error: the index has no such package or wheel.
RemoteFile find_wheel(const Http& http, const PipSettings& pip, std::string_view package, std::string_view version);

}  // namespace palimpsest
