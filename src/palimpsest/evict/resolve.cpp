#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/evict/method_plan.h"

namespace palimpsest {
namespace {

constexpr long long kAnyPrompt = 1LL << 40;  // tokens

// The largest budget from 1 to `max` whose plan fits; prompt_max, if it is auto, is the same. Budgets that are illegal
// because they are small count as fitting, while it is searched. Throws Error if no legal one fits.
template <typename Fits>
int largest_budget(Method method, PlanTarget target, int max, const Fits& fits) {
  target.model = nullptr;
  const std::string given = get_option(method, "budget");
  const int prompt_max = method.prompt_max;
  bool any = false;
  std::size_t smallest = 0;  // bytes of the smallest plan that does not fit
  const auto holds = [&](int budget) {
    method.budget = budget;
    if (prompt_max == kAutoBudget) method.prompt_max = budget;
    try {
      const MethodPlan plan(method, target);
      const bool fit = fits(plan);
      any = any || fit;
      if (!fit) smallest = cache_bytes(plan);
      return fit;
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
  if (!any && smallest > 0)
    fail(
        "budget {}: the smallest cache of this method takes {} bytes, and a prompt's chunk as much as its tokens: give "
        "more, protect fewer tokens, or choose a smaller --prefill-chunk or --page-size",
        given, smallest);
  return low;
}

int max_budget(const Method& m) {
  return (m.how().merges ? kMaxTokens / std::max(1, m.gamma) : kMaxTokens) - m.interval;
}

int of_bytes(const Method& method, const PlanTarget& target) {
  return largest_budget(method, target, max_budget(method),
                        [&](const MethodPlan& plan) { return cache_bytes(plan) <= method.budget_bytes; });
}

// Ranks of keys stay inside the trained context also while a prompt is read.
bool fits_context(const MethodPlan& plan) {
  const int trained = plan.target().trained_context;
  if (plan.method().positions == Positions::kOriginal || trained == 0 || plan.method().budget <= trained / 2)
    return true;
  const auto reading = plan.occupancies(kAnyPrompt, -1).prefill;
  return std::ranges::max(reading, {}, &Occupancy::tokens).tokens <= trained;
}

int of_context(const Method& method, const PlanTarget& target) {
  if (target.trained_context <= 0 && target.memory == 0)
    fail("budget auto: the model does not name its trained context; give a number");
  const int max = target.trained_context > 0 ? target.trained_context : max_budget(method);
  const bool is_auto = method.name == kAutoMethod;
  if (target.memory == 0 && !is_auto) return max;
  return largest_budget(method, target, max, [&](const MethodPlan& plan) {
    if (!plan.method().bounded() || (is_auto && !fits_context(plan))) return !plan.method().bounded();
    return target.memory == 0 || plan.bytes(kAnyPrompt, -1).total() <= target.memory;
  });
}

PlanTarget without_model(PlanTarget target) {
  target.model = nullptr;
  return target;
}

// Method::prompt_max, where the budget is given: what `budget=auto` would keep.
int whole_prompt(Method method, const PlanTarget& target) {
  const int budget = method.budget;
  if (budget <= 0 || (target.trained_context <= 0 && target.memory == 0)) return std::max(0, budget);
  try {
    Method whole = method;
    whole.budget = kAutoBudget;
    method.prompt_max = std::max(budget, of_context(whole, target));
    // More is evicted at once than with that as the budget, which takes memory.
    while (method.prompt_max > budget && target.memory > 0 &&
           MethodPlan(method, without_model(target)).bytes(kAnyPrompt, -1).total() > target.memory)
      method.prompt_max = std::max(budget, method.prompt_max - method.prompt_max / 50 - 1);
    return method.prompt_max;
  } catch (const Error&) {  // no budget fits the memory: the plan of the given one says so
    return budget;
  }
}

}  // namespace

PlanBytes decode_bytes(const MethodPlan& plan) {
  PlanBytes bytes = plan.bytes(1, plan.method().bounded() ? -1 : std::max(1, plan.method().budget));
  bytes.scratch = bytes.hidden = 0;
  return bytes;
}

std::size_t cache_bytes(const MethodPlan& plan) {
  return decode_bytes(plan).total();
}

Method resolve(const Method& method, const PlanTarget& target) {
  Method out = choose_auto(method, target);
  if (method.budget == kByteBudget) {
    out.budget = of_bytes(out, target);
    out.budget_bytes = 0;
  }
  if (method.budget == kAutoBudget) {
    out.budget = of_context(out, target);
    if (out.prompt_max == kAutoBudget) out.prompt_max = out.budget;
  }
  if (out.prompt_max == kAutoBudget) out.prompt_max = whole_prompt(out, target);
  revise_auto(method, target, out);
  return out;
}

}  // namespace palimpsest
