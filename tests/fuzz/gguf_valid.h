// Valid files to damage; small, so that thousands per second can be tried.
#pragma once

#include <vector>

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

struct ValidGguf {
  Bytes bytes;
  bool model;  // false: a vocabulary only
};
std::vector<ValidGguf> valid_gguf_files();

}  // namespace palimpsest::testing
