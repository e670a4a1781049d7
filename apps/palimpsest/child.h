// Runs this program as a child process and captures output, exit code and peak memory.
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

// Waits for the child. On Linux the child is killed when this program ends for any reason. Throws Error if it cannot be
// started.
ChildResult run_this_program(const std::vector<std::string>& words);

}  // namespace palimpsest::cli
