#include "palimpsest/core/cpu_level.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "palimpsest/core/cpu_features.h"
#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::string_view kAmx = "AMX", kAvxVnni = "AVX2_VNNI", kNeonDot = "NEON_DOT", kNeonI8mm = "NEON_I8MM";

// Kernels have no scalable vectors (core/vector_targets.h).
std::int64_t targets_of_cpu() {
  return hwy::SupportedTargets() & ~(HWY_ALL_SVE | HWY_NEON_BF16 | HWY_RVV);
}

// In Highway's sets of targets, a better target is a lower bit.
constexpr std::int64_t best_of(std::int64_t targets) {
  return targets & -targets;
}

// The levels of these targets and of this CPU, best first.
std::vector<std::string> levels_of(std::int64_t targets) {
  std::vector<std::string> out;
  if (has_amx()) out.emplace_back(kAmx);
  if (has_neon_i8mm()) out.emplace_back(kNeonI8mm);
  if (has_neon_dot()) out.emplace_back(kNeonDot);
  for (std::int64_t left = targets; left != 0; left &= left - 1) {
    const std::int64_t target = best_of(left);
    if (target == HWY_AVX2 && has_avx_vnni()) out.emplace_back(kAvxVnni);
    out.emplace_back(hwy::TargetName(target));
  }
  return out;
}

}  // namespace

std::string_view cpu_level_limit() {
  const char* const name = std::getenv("PALIMPSEST_SIMD");
  return name == nullptr ? std::string_view() : name;
}

void limit_cpu_level() {
  const std::string_view name = cpu_level_limit();
  if (name.empty()) return;
  const std::int64_t all = targets_of_cpu();
  const auto levels = levels_of(all);
  if (std::ranges::find(levels, name) == levels.end()) fail("PALIMPSEST_SIMD={}: this CPU has {}", name, cpu_levels());
  if (name == kAmx || name == kNeonDot || name == kNeonI8mm) return;
  const std::string_view target_name = name == kAvxVnni ? "AVX2" : name;
  std::int64_t targets = all;
  while (hwy::TargetName(best_of(targets)) != target_name) targets &= targets - 1;
  hwy::SetSupportedTargetsForTest(targets);
}

bool may_use_avx_vnni() {
  const std::string_view limit = cpu_level_limit();
  return (limit.empty() || limit == kAvxVnni) && has_avx_vnni();
}

bool may_use_amx() {
  const std::string_view limit = cpu_level_limit();
  return (limit.empty() || limit == kAmx) && has_amx();
}

bool may_use_neon_dot() {
  const std::string_view limit = cpu_level_limit();
  return (limit.empty() || limit == kNeonDot) && has_neon_dot();
}

bool may_use_neon_i8mm() {
  const std::string_view limit = cpu_level_limit();
  return (limit.empty() || limit == kNeonI8mm) && has_neon_i8mm();
}

std::string cpu_level() {
  const std::int64_t target = best_of(targets_of_cpu());
  if (may_use_amx()) return std::string(kAmx);
  if (may_use_neon_i8mm()) return std::string(kNeonI8mm);
  if (may_use_neon_dot()) return std::string(kNeonDot);
  return target == HWY_AVX2 && may_use_avx_vnni() ? std::string(kAvxVnni) : hwy::TargetName(target);
}

std::string cpu_levels() {
  std::string out;
  for (const std::string& each : levels_of(targets_of_cpu())) out += (out.empty() ? "" : ", ") + each;
  return out;
}

}  // namespace palimpsest
