// How --help looks: flags in groups, aligned, wrapped at 100 columns; texts after them stand as they were written.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace palimpsest::cli {

// Names of several letters behind one dash, as llama.cpp has them.
struct ShortName {
  const char *given, *name;
};
inline constexpr ShortName kShortNames[] = {{"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}};

// "  left      right, wrapped, every line below the first"
std::string help_row(const std::string& left, const std::string& right);

class HelpFormat : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace palimpsest::cli
