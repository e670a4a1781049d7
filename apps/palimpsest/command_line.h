// The words of a command line: names from other programs, and what to say of words that nobody knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace palimpsest::cli {

// Multi-letter names with one dash, as in llama.cpp: CLI11 knows none.
struct ShortName {
  const char *given, *name;
};
inline constexpr ShortName kShortNames[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-md", "--draft-model"}, {"-hf", "--hf-repo"}};

// The words behind the program's name, with our names for flags of other programs; "help run" is "run --help".
// Throws Error, which says what to write, for a missing or an unknown command, and for flags of other programs that
// have no counterpart.
std::vector<std::string> translated(const CLI::App& app, std::vector<std::string> words);

// What CLI11 refuses, in one line, with the nearest name and the command that prints the help.
std::string explanation(const CLI::App& app, const CLI::ParseError& error);

}  // namespace palimpsest::cli
