// The grid: every combination of the choices that may not change a result, and of those that name the result.
//
//   names the result     policy, schedule, kind of positions (chunks too, unless the policy is sinks + window); of a
//                        two-byte cache also its type, and whether keys are stored rotated: they are rounded
//   may not change it    mechanism, way to keep positions, page size, path, number of sequences
#pragma once

#include <string>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/evict/method.h"

namespace palimpsest::testing {

enum class Path { kReference, kFast, kPortable, kVulkan };

struct Schedule {
  std::string options;  // of the method
  int chunk = 1;        // tokens of a step
};

struct Combination {
  std::string policy, mechanism, positions, way;  // way: how cache positions are kept; empty: original
  Schedule schedule;
  int page_size = 16;
  CacheType type = CacheType::kF32;
  Path path = Path::kFast;

  std::string method() const;    // for parse_method
  std::string name() const;      // one line, all choices
  std::string result() const;    // combinations with the same must give the same
  Combination baseline() const;  // the reference in double precision, in place, pages of 16
  bool exists() const;           // two-query needs a moving window, and so on
};

inline constexpr int kBudget = 48, kSinks = 4;

std::string name_of(CacheType type);
std::string name_of(Path path);

// Those that exist, of the paths asked for; in a fixed order.
std::vector<Combination> all_combinations(const std::vector<Path>& paths);

}  // namespace palimpsest::testing
