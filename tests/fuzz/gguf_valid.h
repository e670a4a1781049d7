// Files without faults, to be damaged: small, so that thousands a second can be tried.
#pragma once

#include <vector>

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

struct ValidGguf {
  Bytes bytes;
  bool model;  // whole; else a vocabulary only
};
std::vector<ValidGguf> valid_gguf_files();

}  // namespace palimpsest::testing
