// This program, run once more: what a command prints, how it ended, how much memory it took.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace palimpsest::cli {

struct ChildResult {
  int code = -1;  // exit code; 128 + n: ended by signal n
  std::string out, err;
  double seconds = 0;
  std::size_t peak_bytes = 0;  // resident
};

// Waits for it. It dies with this program, even if that is killed (Linux). Throws Error if it cannot be started.
ChildResult run_this_program(const std::vector<std::string>& words);

}  // namespace palimpsest::cli
