// Reasons to skip a test that this CPU cannot run.
#pragma once

#include <string>

#include "palimpsest/core/cpu_level.h"

namespace palimpsest::testing {

// Of Panels::supports().
inline std::string needs_panels() {
  return "needs AVX2 or AVX-512 for matrix products of our own; the kernels here are " + cpu_level();
}

}  // namespace palimpsest::testing
