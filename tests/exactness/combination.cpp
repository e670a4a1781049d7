#include "tests/exactness/combination.h"

#include <fmt/format.h>

namespace palimpsest::testing {

namespace {

const std::vector<std::string> kPolicies = {"none", "recent"};
const std::vector<std::string> kMechanisms = {"in-place", "shift"};
const std::vector<std::pair<std::string, std::string>> kPositions = {
    {"original", ""}, {"cache", "two-query"}, {"cache", "fused"}};
const std::vector<Schedule> kSchedules = {
    {"every=1", 1}, {"every=1", 5}, {"every=1", 40}, {"every=8", 1}, {"every=8", 5}};
const std::vector<int> kPageSizes = {16, 32, 64, kBudget};
const std::vector<CacheType> kTypes = {CacheType::kF32, CacheType::kF16, CacheType::kBF16};

}  // namespace

std::string name_of(CacheType type) {
  switch (type) {
    case CacheType::kF32:
      return "f32";
    case CacheType::kF16:
      return "f16";
    case CacheType::kBF16:
      return "bf16";
  }
  return "?";
}

std::string name_of(Path path) {
  switch (path) {
    case Path::kReference:
      return "reference";
    case Path::kFast:
      return "fast";
    case Path::kPortable:
      return "portable";
    case Path::kVulkan:
      return "vulkan";
  }
  return "?";
}

std::string Combination::method() const {
  if (policy == "none") return "full";
  const std::string how = way.empty() ? "" : ",rerotate=" + way;
  return fmt::format("streaming:policy={},budget={},sinks={},mechanism={},positions={}{},{}", policy, kBudget, kSinks,
                     mechanism, positions, how, schedule.options);
}

std::string Combination::name() const {
  return fmt::format("{} chunk={} page={} {} {}", method(), schedule.chunk, page_size, name_of(type), name_of(path));
}

std::string Combination::result() const {
  // A window is kept whatever the chunk: each query sees what it would see token by token.
  const int chunk = policy == "recent" || policy == "none" ? 1 : schedule.chunk;
  const bool rotated = positions == "original" || way == "two-query";
  const std::string rounding = type == CacheType::kF32 ? "" : fmt::format(" {} rotated={}", name_of(type), rotated);
  return fmt::format("{} {} {} chunk={}{}", policy, positions, schedule.options, chunk, rounding);
}

Combination Combination::baseline() const {
  Combination base = *this;
  base.mechanism = "in-place";
  base.page_size = 16;
  base.path = Path::kReference;
  if (policy == "recent" || policy == "none") base.schedule.chunk = 1;
  return base;
}

bool Combination::exists() const {
  if (policy == "none" && (mechanism != "in-place" || positions != "original" || schedule.options != "every=1"))
    return false;
  if (way == "two-query" && (policy != "recent" || schedule.options != "every=1")) return false;
  return true;
}

std::vector<Combination> all_combinations(const std::vector<Path>& paths) {
  std::vector<Combination> all;
  for (const auto& policy : kPolicies)
    for (const auto& mechanism : kMechanisms)
      for (const auto& [positions, way] : kPositions)
        for (const auto& schedule : kSchedules)
          for (const int page_size : kPageSizes)
            for (const CacheType type : kTypes)
              for (const Path path : paths) {
                const Combination c = {policy, mechanism, positions, way, schedule, page_size, type, path};
                if (c.exists()) all.push_back(c);
              }
  return all;
}

}  // namespace palimpsest::testing
