// The only place where policy, budget and cache meet: scores -> protection -> guarded top-k -> Plan.
#pragma once

#include <memory>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/plan.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

class Evictor {
 public:
  explicit Evictor(const Method& method);  // validates; throws Error

  const Needs& needs() const { return needs_; }
  // Brings every table down to at most `keep` live tokens (>= sinks + recent), or does nothing to a table that is less
  // than `every` over. A decode step calls with keep = budget - 1 before it inserts; a chunk of a prompt too, and once
  // more with keep = budget after the last. Lowest score leaves first; of equal scores the oldest. The plan is reused:
  // valid until the next call. Allocates only while tables grow.
  const Plan& plan(Cache& cache, int keep);

 private:
  void choose(const SlotTable& table, int victims, std::vector<int>& chosen);

  Method method_;
  Needs needs_;
  std::unique_ptr<Policy> policy_;  // nullptr: nothing is ever dropped
  Plan plan_;
};

}  // namespace palimpsest
