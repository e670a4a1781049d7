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
// The method `auto` is adapted to the target, too (docs/decisions/0028-pins-and-auto.md): its budget leaves room in the
// trained context for a chunk of a prompt, but is at least half of the context; without host pages it evicts the oldest
// tokens (policy recent); learned positions stay original. Throws Error if there is no such budget.
Method resolve(const Method& method, const PlanTarget& target);

// Whether `auto` pins a system prompt of so many tokens: at most a quarter of the budget.
bool pins_system_prompt(const Method& method, std::size_t tokens);

// Keys, values, tables, statistics and merged tokens of a sequence in decode, at the method's budget. Upper bound.
std::size_t cache_bytes(const MethodPlan& plan);

}  // namespace palimpsest
