// Budgets in bytes, and budget `auto`: as tokens, for one model and one kind of cache.
#pragma once

#include <cstddef>

#include "palimpsest/evict/method_plan.h"

namespace palimpsest {

// The method with a budget in tokens:
//
//   256MiB  the largest whose cache takes at most so many bytes in decode (cache_bytes; a prompt's chunks come on top)
//   auto    the model's trained context, or fewer if PlanTarget::memory holds fewer, prompts included
//
// Throws Error if there is none.
Method resolve(const Method& method, const PlanTarget& target);

// Keys, values, tables, statistics and merged tokens of a sequence in decode, at the method's budget. Upper bound.
std::size_t cache_bytes(const MethodPlan& plan);

}  // namespace palimpsest
