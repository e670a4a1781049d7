#include "palimpsest/core/cpu_level.h"

#include <hwy/highway.h>

#include <cstdint>
#include <cstdlib>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// In Highway's sets of targets, a better target is a lower bit.
constexpr std::int64_t best_of(std::int64_t targets) {
  return targets & -targets;
}

}  // namespace

std::string_view cpu_level_limit() {
  const char* const name = std::getenv("PALIMPSEST_SIMD");
  return name == nullptr ? std::string_view() : name;
}

void limit_cpu_level() {
  const std::string_view name = cpu_level_limit();
  if (name.empty()) return;
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    const std::int64_t target = best_of(left);
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(all & ~(target - 1));
    return;
  }
  fail("PALIMPSEST_SIMD={}: this CPU has {}", name, cpu_levels());
}

std::string cpu_level() {
  return hwy::TargetName(best_of(hwy::SupportedTargets()));
}

std::string cpu_levels() {
  std::string out;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1)
    out += (out.empty() ? "" : ", ") + std::string(hwy::TargetName(best_of(left)));
  return out;
}

}  // namespace palimpsest
