// Shared by tests of sessions.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/session.h"

namespace palimpsest::testing {

inline SessionOptions session_options(const std::string& method, int chunk = 512) {
  return {.method = parse_method(method), .cache_type = CacheType::kF32, .page_size = 16, .chunk = chunk};
}

// Positions of the tokens in the cache, ascending.
inline std::vector<Position> positions_kept(const Cache& cache, int table = 0) {
  const auto all = cache.table(table).position();
  std::vector<Position> positions(all.begin(), all.end());
  std::erase(positions, kNoPosition);
  std::ranges::sort(positions);
  return positions;
}

}  // namespace palimpsest::testing
