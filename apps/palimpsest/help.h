// The format of --help: flags in groups, aligned, wrapped at 100 columns; footers are printed unchanged.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace palimpsest::cli {

// "  left      right", wrapped with a hanging indent.
std::string help_row(const std::string& left, const std::string& right);

class HelpFormat : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace palimpsest::cli
