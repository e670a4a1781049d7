// The only place where policy, budget and cache meet: scores -> protection -> guarded top-k -> Plan.
//
//   step k    plan -> apply -> insert -> attend     the model's threads call on_weights() for each head as its weights
//                                         |         come, while they are in their caches: the policy scores, and the
//                                         v         head's next victim is looked for
//   step k+1  plan (only picks up what was found) -> apply -> ...
//
// Policies of keys and values are asked at a token's birth: on_insert_kv(), in the same place. Those that compare all
// tokens, or look at a window of queries, are asked before a plan: score_table(). With mechanism `block` what leaves
// while tokens come one by one is a page.
//
// Heads that keep a window (CacheOptions::windows) first drop what is outside it, for free: drop_unseen(), before every
// plan(). Where the budget holds the whole window, a head needs no policy and has none.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/plan.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/evict/select.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

class Evictor {
 public:
  // Where budgets are known at a prompt's end (Method::splits_at_prompt_end), the plan's are those until then, and
  // plan() decides.
  explicit Evictor(const MethodPlan& plan);
  // Without a model: a method and a policy. Throws Error. `budgets`: of each slot table; empty: the method's for all.
  explicit Evictor(const Method& method, std::vector<int> budgets = {});

  const Signals& signals() const { return signals_; }
  int budget(int table) const { return budgets_.empty() ? method_.budget : budgets_[static_cast<std::size_t>(table)]; }
  // Tokens before a table's window, of all tables: the next query and those after it do not see them. To be dropped
  // before plan() with the same arguments (CacheChange::unseen). The plan is reused: valid until the next call of
  // either.
  const Plan& unseen(const Cache& cache, int coming, Phase phase = Phase::kDecode);
  // Whether a policy may ever choose among a table's tokens.
  bool decides(int table) const { return policy_ != nullptr && (!keeps_window(table) || splits_); }
  // Tokens that may be inserted before the next eviction is due, at the least 1 after a plan was applied.
  int room(const Cache& cache) const;
  // Brings every table that is due down to its budget less `coming` tokens (0 or 1: a step calls before it inserts,
  // with 1; a chunk once more after it, with 0). Lowest score leaves first; of equal scores the oldest. The plan is
  // reused: valid until the next call. Allocates only while tables grow.
  const Plan& plan(Cache& cache, int coming, Phase phase = Phase::kDecode);
  // The weights that the tokens of one slot table received in this step, mean over the query group, summed over the
  // step's queries (the last signals().queries()); those of merged tokens follow, by place.
  // `sums`: over all of the step's queries, if signals().sums(). Threads may call it for different tables at the same
  // time. Only if signals().weights().
  void on_weights(Cache& cache, int table, std::span<const float> weights, std::span<const float> sums = {});
  // Keys and values of the tokens that one slot table takes in in this step, oldest first. Threads as above. Only if
  // signals().score_on_insert.
  void on_insert_kv(Cache& cache, int table, Rows keys, Rows values);
  // Whether tokens leave a table at plan() with the same arguments; then score_table() must be called before it, with
  // the keys and values of all its slots as far as signals() has them. Threads as above, but tables of one layer whose
  // heads share a decision (AttentionWindow::whole_layer) only read each other. Only if signals().at_decision().
  bool needs_eviction(const Cache& cache, int table, int coming, Phase phase) const;
  void score_table(Cache& cache, int table, Rows keys, Rows values, int coming, Phase phase,
                   const ExpectedQueries& queries = {});
  // Weights were not collected for a while: a window begins anew.
  void invalidate_window(Cache& cache) const;
  // The tables are new, or were changed other than by plans: what on_weights() found does not hold. Before the first
  // score_table().
  void invalidate(const Cache& cache);
  void clear(const Cache& cache);                 // the sequence begins anew: budgets are those of the beginning, too
  void save(ByteWriter& out) const;               // budgets, where a prompt's end decides
  void load(ByteReader& in, const Cache& cache);  // of a cache that was loaded; throws Error for what does not fit it

 private:
  void share_budgets(const Cache& cache);
  void share_by_scores(const Cache& cache, int layer);
  // No policy is needed: the budget holds all that a table's window does.
  bool keeps_window(int table) const {
    if (windows_.empty()) return false;
    return policy_ == nullptr || windows_[static_cast<std::size_t>(table)].size <= budget(table);
  }
  // How many of `live` tokens leave a table now.
  int victims(const SlotTable& table, int t, int occupied, int coming, Phase phase) const;
  int victims(const SlotTable& table, int t, int coming, Phase phase) const {
    return victims(table, t, table.occupied(), coming, phase);
  }
  PositionRange outside(const SlotTable& table, int t) const;
  Guard guard(const SlotTable& table, int budget) const;
  void choose(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen);
  void spare_some(std::vector<int>& chosen) const;
  bool by_page(Phase phase) const { return method_.mechanism == Mechanism::kBlock && phase == Phase::kDecode; }
  void score(const HeadView& view, std::span<float> score) const;
  void score_in_order(HeadView view, std::span<float> score) const;
  void find_next(const SlotTable& table, int t, int coming, Phase phase);

  static constexpr int kUnknown = -1;
  Method method_;
  std::vector<int> budgets_, first_budgets_;  // [table], now and at first
  Signals signals_;
  std::shared_ptr<const Policy> policy_;  // nullptr: nothing is ever dropped
  Plan plan_;
  std::vector<int> next_victim_;      // [table] found by on_weights()
  std::vector<TableWindow> windows_;  // [table]; empty: none
  bool splits_ = false;               // Method::splits_at_prompt_end
};

}  // namespace palimpsest
