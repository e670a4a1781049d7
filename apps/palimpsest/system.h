// The machine and its files, as the subcommands need them.
#pragma once

#include <cstddef>
#include <string>

namespace palimpsest::cli {

// A whole text file, "-" for standard input; throws Error unless it can be read and is UTF-8. `what` names it in
// messages: "the prompt file".
std::string read_text(const std::string& path, const std::string& what);

std::size_t memory_bytes();                  // of this machine
std::string human_bytes(std::size_t bytes);  // "320.0 KiB"

}  // namespace palimpsest::cli
