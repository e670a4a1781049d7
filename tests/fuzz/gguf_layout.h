// Where the fields of a GGUF file are.
#pragma once

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

Layout gguf_layout(const Bytes& valid);  // of a file without faults, little endian, version 2 or 3

}  // namespace palimpsest::testing
