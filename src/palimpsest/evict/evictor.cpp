#include "palimpsest/evict/evictor.h"

#include <cassert>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/select.h"

namespace palimpsest {

Evictor::Evictor(const Method& method) : method_(method) {
  validate(method);
  if (method.policy == "none") return;
  policy_ = make_policy(method.policy);
  needs_ = policy_->needs();
  if (!needs_.positions_only() || needs_.ordered)
    fail(
        "policy {} asks for more than positions (attention weights, keys, values, queries or an order), which is not "
        "collected yet: choose another policy",
        method.policy);
}

const Plan& Evictor::plan(Cache& cache, int keep) {
  plan_.drop.resize(static_cast<std::size_t>(cache.tables()));
  plan_.clear();
  if (policy_ == nullptr) return plan_;
  assert(keep >= method_.protection.sinks + method_.protection.recent);
  for (int t = 0; t < cache.tables(); ++t) {
    SlotTable& table = cache.table(t);
    const int over = table.live() - keep;
    if (over < method_.every) continue;
    policy_->score({.position = table.position(), .fresh = static_cast<int>(table.fresh().size())}, table.score());
    choose(table, over, plan_.drop[static_cast<std::size_t>(t)]);
  }
  return plan_;
}

void Evictor::choose(const SlotTable& table, int victims, std::vector<int>& chosen) {
  const Guard guard{.first = method_.protection.sinks, .last = table.next() - method_.protection.recent};
  select_lowest(std::as_const(table).score(), table.position(), guard, victims, chosen);
}

}  // namespace palimpsest
