// Part of every test program: runs the tests as on a lesser CPU (core/cpu_level.h).
//   PALIMPSEST_SIMD=AVX2 ctest --test-dir build
#include <cstdio>
#include <cstdlib>

#include "palimpsest/core/cpu_level.h"
#include "palimpsest/core/error.h"

namespace {

[[maybe_unused]] const bool g_limited = [] {
  try {
    palimpsest::limit_cpu_level();
  } catch (const palimpsest::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(2);
  }
  return true;
}();

}  // namespace
