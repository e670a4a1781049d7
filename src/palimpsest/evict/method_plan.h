// A method, compiled for one model and one kind of cache. Used by sessions, the scheduler, the prefix cache and
// `info --cache`. Immutable, shared by all sequences of the same method.
//
//   method x target  ->  signals          what attention computes for the policy, by phase
//                        rule             how queries attend to the cache
//                        cache            its options
//                        budgets          of each head, upper bounds; a head's current budget is the evictor's
//                        bytes            upper bound of all memory of a sequence of that many tokens
//
// Illegal combinations throw here, from one table (evict/legality.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/footprint.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/evict/plan_target.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// The phase of a step, and of the evictions before and after it.
enum class Phase {
  kPrefill,     // a chunk of a prompt
  kRepeat,      // a chunk of the prompt's repetition (Signals::repeat)
  kPrefillEnd,  // after the prompt's last token
  kDecode       // one token
};

// Upper bounds of one sequence's memory, in bytes.
struct PlanBytes {
  std::size_t pages = 0;       // keys and values
  std::size_t tables = 0;      // positions, scores, columns, free slots, page ids, victims
  std::size_t statistics = 0;  // of whole heads (QueryMoments)
  std::size_t state = 0;       // of recurrent layers
  std::size_t merged = 0;      // merged tokens
  std::size_t scratch = 0;     // attention weights of one layer
  std::size_t hidden = 0;      // hidden states of a prompt that is read layer by layer
  std::size_t recall = 0;      // evicted tokens in the second tier

  std::size_t total() const { return pages + tables + statistics + state + merged + scratch + hidden + recall; }
  bool operator==(const PlanBytes&) const = default;
};

// The max occupancy of each head (one entry if all are equal): in decode, and while a prompt is read in chunks
// (prefill, never less; heads of different budgets reach their max at different times).
struct Occupancies {
  std::vector<Occupancy> decode, prefill;
};

// The positions that a table's heads can attend to: the newest `size`, and the first `sinks` (of sinks + window: part
// of its budget, and the origin of a second query's ranks). INT32_MAX: all.
struct TableWindow {
  std::int32_t size = INT32_MAX;
  int sinks = 0;
  bool budget_changes = false;  // Method::budgets_change

  // Whether a budget (0: none) holds the whole window, so that the policy does not apply to the table.
  bool held_by(int budget) const { return size != INT32_MAX && (budget == 0 || budget >= size); }
  // ... in all phases; `budget`: the plan's.
  bool always_held_by(int budget) const { return held_by(budget) && !budget_changes; }
};

class MethodPlan {
 public:
  // Throws Error: an illegal combination, an unreadable split, a model that the policy was not trained on.
  MethodPlan(const Method& method, PlanTarget target);
  MethodPlan(const MethodPlan&) = delete;
  MethodPlan& operator=(const MethodPlan&) = delete;

  const Method& method() const { return method_; }  // its budget is in tokens: resolve()
  const PlanTarget& target() const { return target_; }
  int chunk() const { return target_.chunk; }
  // Ready to score if prepared(); nullptr: nothing is ever evicted.
  const std::shared_ptr<const Policy>& policy() const { return policy_; }

  bool prepared() const { return !signals_.model || prepared_; }

  const Signals& signals() const { return signals_; }  // union of all phases
  // The signals that a later eviction can use: with schedule `prompt` decode collects no weights and queries; with
  // Signals::repeat only the repetition collects weights. Columns and score_on_insert are the same in all phases.
  Signals signals(Phase phase) const;
  const AttentionRule& rule() const { return rule_; }  // its head_window points into the plan
  const CacheOptions& cache() const { return cache_; }
  int draft_max() const { return draft_max_; }  // PlanTarget::draft_max, as far as attention allows
  // Whether each draft may drop a token, of a layer's window or by the policy: then drafts take no slots before they
  // are accepted (Cache::preview). Else there are free slots, up to the next eviction.
  bool previews_drafts() const { return draft_max_ > 0 && (!windows_.empty() || previews_victims()); }
  bool previews_victims() const { return victims_follow_from_text(method_, signals_); }  // of the policy
  // ... which are found while a layer runs: a step reports what they follow from.
  bool previews_in_layers() const {
    const Signals now = signals(Phase::kDecode);
    return draft_max_ > 0 && previews_victims() && (now.weights() || now.reads_inserted());
  }
  // Upper bounds, [heads]; empty: the method's budget for all. With Method::budgets_change they hold until the
  // prompt's end, or the first decision.
  const std::vector<int>& budgets() const { return budgets_; }
  // Whether what a head evicts goes to its second tier (Method::recall, recall_heads).
  bool recalls(int head) const { return method_.recall > 0 && (recalling_.empty() || recalling_[at(head)]); }
  // [tables]; empty: no layer has a window, or keys and values are not in host pages.
  //
  //   budget >= window   the head keeps its whole window; the policy does not apply to it
  //   budget < window    tokens outside the window are dropped first, then the policy's victims. (Not with sinks +
  //                      window or mechanism block: few tokens would be outside.)
  const std::vector<TableWindow>& windows() const { return windows_; }
  // Policy::fading(), if a device keeps the scores of decode steps and chooses their victims: in place, one token of
  // each head at every step.
  std::optional<float> fading_on_device() const;
  // Whether a step may drop tokens.
  bool drops() const { return method_.cache && (method_.evicts() || !windows_.empty()); }
  // While a prompt is read, no token was evicted after this many tokens.
  long long nothing_evicted_until() const;

  // `tokens`: total, of which the first `prompt` are read in chunks; -1: unlimited (bounded() methods only). A later
  // prompt of the same text adds at most a chunk to `decode` less one (with schedule prompt+step: the prompt).
  // `continued`: the text begins with earlier prompts and answers, which were read and generated before; `prompt`
  // counts them.
  // Layer by layer, `prefill` has the prompt in one layer only.
  Occupancies occupancies(long long prompt, long long tokens, bool continued = false) const;
  // Throws Error if an eviction of such a sequence would hold up others: only with PlanTarget::shares_steps.
  void check_request(long long prompt, long long tokens) const;
  // Max over the whole life of such a sequence.
  PlanBytes bytes(long long prompt, long long tokens, bool continued = false) const;
  std::size_t scratch_bytes(const Footprint& footprint) const;  // PlanBytes::scratch of such a cache
  std::size_t hidden_bytes(long long prompt) const;             // PlanBytes::hidden
  std::size_t recall_bytes(long long tokens) const;             // PlanBytes::recall; -1: unlimited

 private:
  PlanBytes bytes_of(std::span<const Occupancy> occupancy) const;
  std::size_t draft_bytes(const Footprint& footprint) const;
  void leave_prompt_to_one_layer(Occupancies& all) const;
  int budget_of(int head) const;
  TableWindow window_of(int head) const;
  bool holds_window(int head) const { return window_of(head).always_held_by(budget_of(head)); }
  void keep_windows();
  void name_head_windows();

  Method method_;
  PlanTarget target_;
  std::shared_ptr<const Policy> policy_;
  Signals signals_;
  AttentionRule rule_;
  CacheOptions cache_;
  int draft_max_ = 0;
  std::vector<int> budgets_;
  std::vector<bool> recalling_;             // [heads]; empty: all
  bool prepared_ = false;                   // Policy::prepare() was called
  std::vector<std::int32_t> head_windows_;  // [heads] AttentionRule::head_window points here, if they differ
  std::vector<TableWindow> windows_;        // [table]
};

// How queries attend to a method's cache, in a model with this kind of positions.
AttentionRule attention_rule(const Method& method, PositionKind kind);

// Budgets in bytes, and budget `auto`, as tokens (resolve.cpp). The method with a budget in tokens:
//
//   256MiB  the largest whose cache takes at most so many bytes in decode (cache_bytes; a prompt's chunks come on top)
//   auto    the model's trained context, or fewer if PlanTarget::memory holds fewer, prompts included
//
// The method `auto` is adapted to the target, too (docs/decisions/0028-pins-and-auto.md): its budget leaves room in the
// trained context for a chunk of a prompt, but is at least half of the context; without host pages it evicts the oldest
// tokens (policy recent); learned positions stay original. Throws Error if there is no such budget.
Method resolve(const Method& method, const PlanTarget& target);

// What a sequence holds in decode, at the method's budget, without working memory. Upper bound. `pages`: the size that
// is called that of the cache, in whole pages as Cache::bytes_in_use(); all other places take it from here.
PlanBytes decode_bytes(const MethodPlan& plan);
std::size_t cache_bytes(const MethodPlan& plan);  // with tables, statistics and merged tokens

}  // namespace palimpsest
