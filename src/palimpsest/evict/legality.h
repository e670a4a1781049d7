// Which methods are legal: one table. A row states that a choice of the method (or of its policy) requires something of
// the rest of the method, the policy, the model or the device, and has the error's sentence.
//
//   scope     decided from                                    checked when
//   kMethod   the method alone                                it is parsed and validated
//   kPolicy   ... and its policy's signals                    an evictor or a plan is made
//   kShared   the method alone, if sequences share steps      a plan is made for such; a server starts
//   kTarget   ... and the model, the device, the cache        a plan is made (evict/method_plan.h)
//   kHead     ... and the budget of one head                  a plan is made
//   kRequest  ... and the lengths of a request                it is submitted (MethodPlan::check_request)
//
// Faults of a single value or file (a number out of range, a split file, a scorer) are checked where it is read.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "palimpsest/core/attention_rule.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/signals.h"

namespace palimpsest {

// Whether each token of a text evicts another, and which one is known when the model has read the token in front: the
// policy goes by positions, or, in place, by the weights of each step or by the keys and values of new tokens.
inline bool victims_follow_from_text(const Method& m, const Signals& signals) {
  const bool in_layers = m.mechanism == Mechanism::kInPlace && !signals.at_decision();
  return m.evicts() && m.cache && m.interval == 1 && !m.how().whole_pages && !m.splits_at_decisions() &&
         (signals.positions_only() || in_layers) &&
         (m.schedule == Schedule::kStep || m.schedule == Schedule::kPromptStep);
}

struct PlanTarget;

struct Candidate {  // fields that a scope does not use may be missing
  const Method& method;
  Signals signals = {};
  const PlanTarget* target = nullptr;
  AttentionRule rule = {};
  int budget = 0, page_size = 0;  // kHead
  long long tokens = 0;           // kRequest: max tokens of a head in an eviction
};

enum class Scope { kMethod, kPolicy, kShared, kTarget, kHead, kRequest };

struct Requirement {
  Scope scope;
  std::string_view name;  // "merge: attention window"
  bool (*required)(const Candidate&);
  bool (*offered)(const Candidate&);
  std::string (*sentence)(const Candidate&);  // what is wrong and what to do
};
std::span<const Requirement> requirements();  // all rows
std::span<const Requirement> general_requirements();
std::span<const Requirement> draft_requirements();      // of PlanTarget::draft_max
std::span<const Requirement> layerwise_requirements();  // of PlanTarget::layerwise
std::span<const Requirement> match_requirements();      // of mechanism match
std::span<const Requirement> recall_requirements();     // of Method::recall
std::span<const Requirement> lossless_requirements();   // of Method::lossless
std::span<const Requirement> position_requirements();   // of Method::positions and rerotate

bool is_legal(Scope scope, const Candidate& candidate);
// Throws Error with the sentence of the first row of the scope that is required and not offered.
void check_legal(Scope scope, const Candidate& candidate);
// Throws Error if no sequence that shares its steps with others, as those of a server, can have the method.
void check_shares_steps(const Method& method);

// Multiplications of an eviction that compares tokens with each other, where others wait for it: 2 s on two cores.
inline constexpr double kMaxComparisons = 0x1p36;
inline constexpr int kMaxGamma = 4096;  // a merged token costs about a tenth of a slot's bytes

}  // namespace palimpsest
