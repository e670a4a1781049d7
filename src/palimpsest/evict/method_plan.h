// A method, compiled for one model and one kind of cache: what a session, the scheduler, the prefix cache and
// `info --cache` ask of it. Made once, immutable, shared by all sequences of the same method.
//
//   method x target  ->  signals          what attention hands out, by phase
//                        rule             how the cache is attended to
//                        cache            its options
//                        budgets          of each head, the upper bounds; a head's current budget is the evictor's
//                        bytes            of everything that a sequence of so many tokens may come to hold
//
// Illegal combinations throw here, from one table (evict/legality.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/footprint.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/evict/plan_target.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// What a step, or an eviction before or after it, is part of.
enum class Phase {
  kPrefill,     // a chunk of a prompt that goes on
  kRepeat,      // a chunk of a prompt that is read a second time for its weights
  kPrefillEnd,  // after the prompt's last token
  kDecode       // one token
};

// What one sequence may come to hold: upper bounds.
struct PlanBytes {
  std::size_t pages = 0;       // keys and values
  std::size_t tables = 0;      // positions, scores, columns, free slots, page ids, victims
  std::size_t statistics = 0;  // of whole heads (QueryMoments)
  std::size_t merged = 0;      // merged tokens
  std::size_t scratch = 0;     // weights of one layer, while a policy looks at them

  std::size_t total() const { return pages + tables + statistics + merged + scratch; }
  bool operator==(const PlanBytes&) const = default;
};

// What each head holds at the most (one entry where all hold as much): while the model writes token by token, and while
// a prompt goes through it in chunks (no fewer than the former; heads of other budgets hold the most at other times).
struct Occupancies {
  std::vector<Occupancy> writing, reading;
};

// The positions that a table's heads keep: `size` of the newest, besides the first `sinks` (of sinks + window: they are
// part of its budget however positions are kept, and a second query counts ranks from them). INT32_MAX: all.
struct TableWindow {
  std::int32_t size = INT32_MAX;
  int sinks = 0;
};

class MethodPlan {
 public:
  // Throws Error: an illegal combination, a split that cannot be read, a model that the policy was not made for.
  MethodPlan(const Method& method, PlanTarget target);
  MethodPlan(const MethodPlan&) = delete;
  MethodPlan& operator=(const MethodPlan&) = delete;

  const Method& method() const { return method_; }
  const PlanTarget& target() const { return target_; }
  int chunk() const { return target_.chunk; }
  // Ready to score if prepared(); nullptr: nothing is ever evicted.
  const std::shared_ptr<const Policy>& policy() const { return policy_; }

  bool prepared() const { return !signals_.model || prepared_; }

  const Signals& signals() const { return signals_; }  // of all phases together
  // Those that can still decide: with schedule `prompt` no token is evicted between prompts, so attention and queries
  // are not looked at while decoding; with a repetition, weights are those of the repetition alone. Columns and scores
  // on insert are the same in all phases.
  Signals signals(Phase phase) const;
  const AttentionRule& rule() const { return rule_; }  // its head_window lies in the plan
  const CacheOptions& cache() const { return cache_; }
  // Upper bounds, [heads]; empty: the method's budget for all. Where a prompt's end decides
  // (Method::splits_at_prompt_end), those until then.
  const std::vector<int>& budgets() const { return budgets_; }
  // Of each slot table; empty: none keeps a window, because no layer has one, or the bytes are not in host pages.
  //
  //   budget >= window   the head keeps its window, all of it; the method is that of the other layers
  //   budget < window    what is outside the window is dropped first, then what the policy chooses. Not by sinks +
  //                      window and mechanism block: these leave nothing outside that would be worth a change
  const std::vector<TableWindow>& windows() const { return windows_; }
  // Something may have to be dropped in a step.
  bool drops() const { return method_.cache && (method_.evicts() || !windows_.empty()); }
  // As long as a prompt goes on, no token has left a table after so many were read.
  long long whole_until() const;

  // `tokens`: how many there will be in all, `prompt` of them read in chunks; -1: no end (methods that are bounded()).
  Occupancies occupancies(long long prompt, long long tokens) const;
  // At every moment of such a sequence, at the most.
  PlanBytes bytes(long long prompt, long long tokens) const;
  std::size_t scratch_bytes(const Footprint& footprint) const;  // PlanBytes::scratch of such a cache

 private:
  PlanBytes bytes_of(std::span<const Occupancy> occupancy) const;
  int budget_of(int head) const;
  bool holds_window(int head) const;
  void keep_windows();
  void name_head_windows();

  Method method_;
  PlanTarget target_;
  std::shared_ptr<const Policy> policy_;
  Signals signals_;
  AttentionRule rule_;
  CacheOptions cache_;
  std::vector<int> budgets_;
  bool prepared_ = false;                   // the policy was shown its model
  std::vector<std::int32_t> head_windows_;  // that the rule names, if they differ
  std::vector<TableWindow> windows_;        // [table]
};

// How a method's cache is attended to in a model with such positions.
AttentionRule attention_rule(const Method& method, PositionKind kind);

}  // namespace palimpsest
