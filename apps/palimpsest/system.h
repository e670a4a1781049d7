// Text files and byte formatting for the subcommands.
#pragma once

#include <cstddef>
#include <string>

namespace palimpsest::cli {

// Reads a text file; "-" is standard input. Throws Error unless it is readable UTF-8. `what`: its name in errors, as in
// "the prompt file".
std::string read_text(const std::string& path, const std::string& what);

std::string human_bytes(std::size_t bytes);  // "320.0 KiB"

}  // namespace palimpsest::cli
