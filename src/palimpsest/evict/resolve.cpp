#include "palimpsest/evict/resolve.h"

#include <algorithm>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr long long kAnyPrompt = 1LL << 40;  // tokens

// The largest budget from 1 to `max` whose plan fits; 0: none. Budgets that are illegal because they are small fit.
template <typename Fits>
int largest_budget(Method method, PlanTarget target, int max, const Fits& fits) {
  target.model = nullptr;
  const auto holds = [&](int budget) {
    method.budget = budget;
    try {
      return fits(MethodPlan(method, target));
    } catch (const Error&) {
      return true;
    }
  };
  int low = 0, high = max;  // `low` fits
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

int max_budget(const Method& m) {
  return (m.mechanism == Mechanism::kMerge ? kMaxTokens / std::max(1, m.gamma) : kMaxTokens) - m.interval;
}

int of_bytes(const Method& method, const PlanTarget& target) {
  std::size_t least = 0;  // bytes of the smallest plan that was tried
  const int budget = largest_budget(method, target, max_budget(method), [&](const MethodPlan& plan) {
    const std::size_t bytes = cache_bytes(plan);
    least = least == 0 ? bytes : std::min(least, bytes);
    return bytes <= method.budget_bytes;
  });
  if (budget == 0)
    fail("budget {}: a cache of the fewest tokens takes {} bytes: give at least that", get_option(method, "budget"),
         least);
  return budget;
}

int of_context(const Method& method, const PlanTarget& target) {
  if (target.trained_context <= 0 && target.memory == 0)
    fail("budget auto: the model does not name its trained context; give a number");
  const int max = target.trained_context > 0 ? target.trained_context : max_budget(method);
  if (target.memory == 0) return max;
  const int budget = largest_budget(method, target, max, [&](const MethodPlan& plan) {
    return !plan.method().bounded() || plan.bytes(kAnyPrompt, -1).total() <= target.memory;
  });
  if (budget == 0) fail("budget auto: not one token fits into {} bytes: give more --cache-memory", target.memory);
  return budget;
}

}  // namespace

std::size_t cache_bytes(const MethodPlan& plan) {
  const PlanBytes bytes = plan.bytes(1, plan.method().bounded() ? -1 : std::max(1, plan.method().budget));
  return bytes.total() - bytes.scratch;
}

Method resolve(const Method& method, const PlanTarget& target) {
  Method out = method;
  if (method.budget == kByteBudget) {
    out.budget = of_bytes(method, target);
    out.budget_bytes = 0;
  }
  if (method.budget == kAutoBudget) out.budget = of_context(method, target);
  return out;
}

}  // namespace palimpsest
