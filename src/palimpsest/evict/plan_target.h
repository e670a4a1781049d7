// What a method is planned for: a model, a device and a kind of cache (evict/method_plan.h).
#pragma once

#include <functional>
#include <string>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

struct PlanTarget {
  // Heads and their dimensions, cache type, page size, and whether keys and values lie in host pages.
  CacheOptions shape = {};
  PositionKind positions = PositionKind::kNone;
  int chunk = 512;             // tokens of a prompt that go through the model at once
  bool shares_steps = false;   // other sequences go through the model with it
  bool shares_pages = false;   // ... and take their pages from the same pool
  std::string head_list = {};  // the file that split `duo` stands for; empty: there is none
  // The model, for policies that were made for one; empty: the plan counts bytes only, and makes no evictor for them.
  std::function<PolicyModel()> model = {};
};

}  // namespace palimpsest
