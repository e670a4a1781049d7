// The evictor of a method for a small cache without a model.
#pragma once

#include <utility>

#include "palimpsest/evict/evictor.h"

namespace palimpsest::testing {

// Throws Error for an illegal method.
inline Evictor evictor_of(const Method& method) {
  PlanTarget target;
  target.shape = {.geometry = HeadGeometry::uniform(2, 2, 16, 16), .page_size = 16};
  return Evictor(MethodPlan(method, std::move(target)));
}

}  // namespace palimpsest::testing
