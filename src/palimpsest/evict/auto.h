// What `auto` stands for: the preset's row, the policy and the split that it chooses, what it pins. Nothing else knows.
#pragma once

#include <cstddef>
#include <string_view>

#include "palimpsest/evict/method.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {

MethodRow auto_row();

// Where a prompt is compressed at its end, by its last queries, which may be the question.
inline constexpr std::string_view kPolicyAtPromptEnd = "critical";
// Where tokens are evicted as they come: by differences of keys, which keep what nobody has asked for yet. With one
// share for all heads that alone would forget what the question asks for (docs/decisions/0042-auto-on-real-models.md).
inline constexpr std::string_view kPolicyAsTokensCome = "keydiff";

// The method without kAutoPolicy and Split::kAuto, on this target. Its budget may not be known yet.
Method choose_auto(const Method& method, const PlanTarget& target);
// Whether the method shares its budget among heads as soon as the model has a profile. Of split=auto only with a budget
// that is given: without one `auto` fills the context, in which all heads have the same.
bool wants_profile(const Method& method, PlanTarget target);
// `out`: choose_auto(method), with its budget and prompt_max in tokens.
void revise_auto(const Method& method, const PlanTarget& target, Method& out);

// Whether `auto`, or a method of uniform budgets if the client `marked` it, pins a system prompt of so many tokens: at
// most a quarter of the budget.
bool pins_system_prompt(const Method& method, std::size_t tokens, bool marked = false);

}  // namespace palimpsest
