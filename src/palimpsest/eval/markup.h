// Text inside HTML and XML.
#pragma once

#include <string>

namespace palimpsest {

// Escapes the five special characters. Control characters, which XML 1.0 forbids, become spaces.
std::string escape_markup(const std::string& text);

}  // namespace palimpsest
