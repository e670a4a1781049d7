// The threads of a custom operator on the CPU: ggml's, which all call it, or those of a pool, if ggml calls it from one
// thread (graph/pool_graph.h).
#pragma once

#include "palimpsest/core/workers.h"

namespace palimpsest {

// Work of an operator, in numbers read or multiplied, that takes longer than handing it to another thread.
constexpr double kWorthSharing = 16384;

// Calls part(i, parts) once for each i below `parts`. `thread`, `threads`: as ggml calls the operator. `work`: of all
// parts together.
template <typename Part>
void in_parts(Workers* pool, int thread, int threads, double work, const Part& part) {
  const int parts = pool == nullptr || threads > 1 || work < kWorthSharing ? 1 : pool->threads();
  if (parts == 1) return part(thread, threads);
  pool->run(parts, [&](int i) { part(i, parts); });
}

}  // namespace palimpsest
