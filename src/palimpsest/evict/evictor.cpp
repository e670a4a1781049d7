#include "palimpsest/evict/evictor.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/core/error.h"

namespace palimpsest {

Evictor::Evictor(const Method& method, std::vector<int> budgets) : method_(method), budgets_(std::move(budgets)) {
  validate(method);
  if (method.policy == "none") return;
  policy_ = make_policy(method.policy);
  needs_ = policy_->needs();
  if (needs_.keys || needs_.values || needs_.queries || needs_.ordered)
    fail("policy {} asks for keys, values, queries or an order, which are not collected yet: choose another policy",
         method.policy);
}

int Evictor::room(const Cache& cache) const {
  if (policy_ == nullptr) return INT32_MAX;
  int least = INT32_MAX;
  for (int t = 0; t < cache.tables(); ++t) {
    const int most = budget(t) + (method_.schedule == Schedule::kPage ? cache.options().page_size : method_.every - 1);
    least = std::min(least, most - cache.table(t).live());
  }
  return least;
}

// How many tokens leave a table now.
int Evictor::victims(const SlotTable& table, int budget, int coming, Moment moment) const {
  int every = method_.every;
  if (method_.schedule == Schedule::kPrompt && moment != Moment::kPromptEnd) return 0;
  if (method_.schedule == Schedule::kPromptStep) {
    if (moment == Moment::kPrompt) return 0;
    if (moment == Moment::kPromptEnd) every = 1;
  }
  if (method_.schedule == Schedule::kPage) {
    every = table.page_size();
    coming = 0;
  }
  const int over = table.live() - (budget - coming);
  if (over < every) return 0;
  const int all = over + method_.slack;
  return method_.max_drop > 0 ? std::min(all, method_.max_drop) : all;
}

const Plan& Evictor::plan(Cache& cache, int coming, Moment moment) {
  plan_.drop.resize(static_cast<std::size_t>(cache.tables()));
  plan_.clear();
  if (policy_ == nullptr) return plan_;
  next_victim_.resize(plan_.drop.size(), kUnknown);
  for (int t = 0; t < cache.tables(); ++t) {
    SlotTable& table = cache.table(t);
    const int count = victims(table, budget(t), coming, moment);
    int& known = next_victim_[static_cast<std::size_t>(t)];
    auto& chosen = plan_.drop[static_cast<std::size_t>(t)];
    if (count == 1 && known != kUnknown && method_.refresh == 0) {
      chosen.push_back(known);
    } else if (count > 0) {
      if (needs_.positions_only())
        policy_->score({.position = table.position(), .fresh = static_cast<int>(table.fresh().size())}, table.score());
      choose(table, guard(table, budget(t)), count, chosen);
    }
    known = kUnknown;
  }
  return plan_;
}

void Evictor::received(Cache& cache, int t, std::span<const float> weights) {
  SlotTable& table = cache.table(t);
  assert(weights.size() == table.score().size() && !needs_.positions_only());
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
  policy_->score({.position = table.position(), .attention = weights, .fresh = static_cast<int>(table.fresh().size())},
                 table.score());
  next_victim_[static_cast<std::size_t>(t)] = victims(table, budget(t), 1, Moment::kDecode) == 1
                                                  ? select_lowest(columns_of(table), guard(table, budget(t)))
                                                  : kUnknown;
}

void Evictor::forget() {
  std::ranges::fill(next_victim_, kUnknown);
}

Guard Evictor::guard(const SlotTable& table, int budget) const {
  return {.first = method_.protection.sinks, .last = table.next() - method_.recent(budget)};
}

void Evictor::choose(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen) {
  select_lowest(columns_of(table), guard, count + method_.refresh, chosen);
  if (method_.refresh > 0) spare_some(chosen);
}

// `refresh` of the victims, evenly spaced by age, stay: seed 001 names such tokens ("non-core retained tokens") and
// their share of the budget, but not how they are chosen.
void Evictor::spare_some(std::vector<int>& chosen) const {
  const std::size_t all = chosen.size(), spared = static_cast<std::size_t>(method_.refresh);
  std::size_t kept = 0;
  for (std::size_t i = 0, next = 0; i < all; ++i) {
    if (next < spared && i == (2 * next + 1) * all / (2 * spared)) {
      ++next;
      continue;
    }
    chosen[kept++] = chosen[i];
  }
  chosen.resize(kept);
}

}  // namespace palimpsest
