// Part of every test program: runs the tests as on a lesser CPU.
//   PALIMPSEST_SIMD=AVX2 ctest --test-dir build     Highway's name of the best instruction set that is used
#include <hwy/highway.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// In Highway's sets of targets, a better target is a lower bit.
[[maybe_unused]] const bool g_limited = [] {
  const char* const name = std::getenv("PALIMPSEST_SIMD");
  if (name == nullptr) return false;
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    if (std::strcmp(hwy::TargetName(target), name) == 0) {
      hwy::SetSupportedTargetsForTest(all & ~(target - 1));
      return true;
    }
  }
  std::fprintf(stderr, "PALIMPSEST_SIMD: this CPU has no %s\n", name);
  std::exit(2);
}();

}  // namespace
