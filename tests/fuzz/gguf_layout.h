// Offsets of the fields of a GGUF file.
#pragma once

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

Layout gguf_layout(const Bytes& valid);  // of a valid file, little endian, version 2 or 3

}  // namespace palimpsest::testing
