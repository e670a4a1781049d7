// The only place where policy, budget and cache meet: scores -> protection -> guarded top-k -> Plan.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/plan.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

class Evictor {
 public:
  explicit Evictor(const Method& method);

  const Needs& needs() const { return needs_; }
  // Brings every table down to at most `keep` live tokens. A decode step calls with keep = budget - 1 before it
  // inserts; a chunk of a prompt too, and once more with keep = budget after the last. The plan is reused: valid until
  // the next call.
  const Plan& plan(Cache& cache, int keep);

 private:
  Method method_;
  Needs needs_;
  std::unique_ptr<Policy> policy_;
  Plan plan_;
  std::vector<float> scratch_;
  std::vector<int> order_;
};

}  // namespace palimpsest
