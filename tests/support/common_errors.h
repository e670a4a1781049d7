// docs/common-errors.md against the program's messages.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/support/file_content.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {

// Numbers and sizes as N: they depend on the machine.
inline std::string without_numbers(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+(\\.[0-9]+)?( [KMGT]iB)?"), "N");
}

// The page quotes this message, as a line of its own.
inline void expect_quoted(const std::string& message) {
  static const std::string page = without_numbers(file_content((source_dir() / "docs" / "common-errors.md").string()));
  EXPECT_NE(page.find("\n    " + without_numbers(message) + "\n"), std::string::npos)
      << "docs/common-errors.md does not have the line\n    " << message;
}

}  // namespace palimpsest::testing
