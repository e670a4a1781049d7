// Policies that rank part of a head's tokens apart, of a size that is a share of the budget: the first of two stages,
// or tokens that are reserved. MethodPlan tells them the budgets before the first score.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest {

class OfBudget {
 public:
  virtual ~OfBudget() = default;
  // Tokens that each head keeps after an eviction, [KV heads of all layers]; empty: all heads keep `budget`. Budgets
  // that are shared out later (split=ada, and pyramid at a prompt's end) count as they are at the start.
  void set_budgets(std::span<const int> of_heads, int budget) {
    of_heads_.assign(of_heads.begin(), of_heads.end());
    budget_ = budget;
  }

 protected:
  // At most `all`; 0 if set_budgets() was not called.
  std::size_t share_of_budget(double share, int table, std::size_t all) const {
    const auto head = static_cast<std::size_t>(table);
    const int budget = head < of_heads_.size() ? of_heads_[head] : budget_;
    return std::min(all, static_cast<std::size_t>(share * budget));
  }
  // From 0 to 1.
  static PolicyOption share_option(const OptionText& text, double& field) {
    return {text, [=, &field](std::string_view value) { field = parse_real(value, text.name, 0, 1); },
            [&field] { return fmt::format("{}", field); }};
  }

 private:
  std::vector<int> of_heads_;
  int budget_ = 0;
};

// If the policy is one.
inline void set_budgets(Policy& policy, std::span<const int> of_heads, int budget) {
  if (auto* const of_budget = dynamic_cast<OfBudget*>(&policy)) of_budget->set_budgets(of_heads, budget);
}

}  // namespace palimpsest
