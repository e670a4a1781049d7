// Decides which tokens are evicted: scores (evict/scorer.h) -> protection -> guarded top-k -> Victims.
//
//   step k    plan -> drop -> insert -> attend      the model's threads call on_weights() for each head as soon as its
//                                         |         weights are computed, while they are in the CPU's caches: the
//                                         v         policy scores, and the head's next victim is selected
//   step k+1  plan (uses that victim) -> drop -> ...
//
// Policies that score on insert run in on_insert_kv(), at the same time. Those that compare all tokens, or use a window
// of queries, run before a plan: score_table(). With mechanism `block` decode evicts whole pages.
//
// Whoever evicts decides and selects in one way (decide(), select_victims()): a plan, the victim of the next step, that
// of a draft on a copy of a table. A device selects by its own scores, among the slots that guard() admits.
//
// Heads with an attention window (CacheOptions::windows) first drop the tokens outside it: out_of_window(), before
// every plan(). A head whose budget holds its whole window is not scored.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/victims.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/evict/scorer.h"
#include "palimpsest/evict/select.h"

namespace palimpsest {

// What a table loses at a decision.
struct Decision {
  int due = 0;    // tokens that have to go
  int count = 0;  // how many of them now: all, but for Method::max_drop
  Guard guard;    // if any are due: which tokens may
};

class Evictor {
 public:
  // With Method::budgets_change the plan's budgets hold until plan() computes new ones: at the prompt's end, or at each
  // decision.
  // Requires: plan.prepared().
  explicit Evictor(const MethodPlan& plan);

  const Signals& signals() const { return scorer_.signals(); }
  Scorer& scorer() { return scorer_; }
  const Scorer& scorer() const { return scorer_; }
  // A table's share of the budget, at present.
  int budget(int table) const { return budgets_.empty() ? method_.budget : budgets_[static_cast<std::size_t>(table)]; }
  // Tokens of all tables that are outside the table's window: no later query sees them. Valid until committed().
  // Requires: they are dropped before plan() with the same arguments, or together with its victims
  // (CacheChange::out_of_window).
  const Victims& out_of_window(const Cache& cache, int coming, Phase phase = Phase::kDecode);
  // The same of one table in decode, and what plan() would evict from it after that: of `table`, a copy of table `t` as
  // later tokens change it.
  // Requires: victims_of(): its scores are up to date, or the policy goes by positions; !signals().at_decision(), and
  // the mechanism is not block.
  void outside_of(const SlotTable& table, int t, std::vector<int>& slots) const;
  void victims_of(SlotTable& table, int t, int outside, std::vector<int>& slots) const;
  // Whether plan() will decide among the other tokens of a table that has some outside its window: then these must be
  // dropped first, for a policy compares all tokens of a table.
  bool decides_beside(const Cache& cache, int coming, Phase phase) const;
  // Whether a policy may ever evict from a table.
  bool decides(int table) const { return scorer_.has_policy() && !table_window(table).always_held_by(budget(table)); }
  // Tokens that may be inserted before the next eviction, after the drops that were decided; at least 1 then.
  int room(const Cache& cache) const;
  // Tokens that may be inserted before out_of_window() moves others, likewise. Mechanism block moves none, but
  // frees whole pages.
  int room_for_out_of_window(const Cache& cache) const;
  // Reduces every table that needs an eviction to its budget minus `coming` tokens (1 before a step inserts, 0 after a
  // chunk), as if the tokens out_of_window() were gone. Evicts the lowest scores; of equal scores the oldest token.
  // `tables`: the others are not changed, and keep what was selected of them.
  // Valid until committed(). Allocates only while tables grow. Nothing else changes: it may be called again.
  // Requires: with signals().at_decision(), score_table() was called for every table that needs_eviction().
  const Victims& plan(Cache& cache, int coming, Phase phase = Phase::kDecode, TableRange tables = {});
  const Victims& outside() const { return outside_; }  // of the last out_of_window()
  const Victims& victims() const { return victims_; }  // of the last plan()
  int dropped(int table) const { return outside_count(table) + (victims_.drop.empty() ? 0 : count(victims_, table)); }
  // Empties outside() and victims(). Requires: the cache has dropped them.
  void committed();
  // This step's attention weights of one slot table's tokens: reduced over the query group (signals().reduction()),
  // summed over the queries of each row (without a window: over all, in one row); those of merged tokens follow, by
  // entry. `sums`: over all of the step's queries, if signals().sums(). Threads may call it for different tables at the
  // same time.
  // Requires: signals().weights(); invalidate() or plan() was called for this cache.
  void on_weights(Cache& cache, int table, const Rows& weights, std::span<const float> sums = {});
  // Keys and values of the tokens inserted into one slot table in this step, oldest first. Threads as above.
  // Requires: signals().reads_inserted(); one row per inserted token.
  void on_insert_kv(Cache& cache, int table, Rows keys, Rows values);
  // Whether plan() of the next decode step evicts one token of every table, after a step that inserted one into each:
  // then a device may choose it, by its own scores (MethodPlan::fading_on_device).
  bool one_due(const Cache& cache) const;
  // A device's choice. Requires: guard() admits the token.
  void set_next_victim(int table, int slot) { next_victim_[static_cast<std::size_t>(table)] = slot; }
  Guard guard(const SlotTable& table, int t) const;
  // Whether that plan() knows its victims: it does not read scores.
  bool knows_next_victims() const;
  // Whether plan() with the same arguments evicts from a table. If so, call score_table() before it, with the keys and
  // values of all its slots if signals() has them. Threads as above; tables of one layer whose heads share a decision
  // (AttentionWindow::whole_layer) only read each other's columns.
  // Requires: signals().at_decision(); invalidate() was called for this cache.
  bool needs_eviction(const Cache& cache, int table, int coming, Phase phase) const;
  void score_table(Cache& cache, int table, Rows keys, Rows values, int coming, Phase phase,
                   const ExpectedQueries& queries = {}, const Interrupt* interrupt = nullptr);
  // Forgets the victims that on_weights() selected: the tables are new, or were changed other than by plans.
  void invalidate(const Cache& cache);
  void release(TableRange tables);   // frees memory of victims
  void clear(const Cache& cache);    // invalidates, and restores the first budgets
  void save(ByteWriter& out) const;  // budgets, if budgets_change(); the window, if there is one
  // Throws Error if they do not match. Requires: `cache` is loaded.
  void load(ByteReader& in, const Cache& cache);

 private:
  void share_budgets(const Cache& cache, TableRange tables);
  void share_at_decision(const Cache& cache, int coming, Phase phase);
  void share_by_scores(const Cache& cache, int layer, int coming);
  // Whether plan() decides about this table: with Method::splits_at_decisions about all of its layer, or none.
  bool decides_now(const Cache& cache, int table, int coming, Phase phase) const;
  // Tokens of the fullest table, once all have read what the first has (layer by layer, others have not).
  static int tokens_of_fullest(const Cache& cache);
  TableWindow table_window(int table) const {
    return windows_.empty() ? TableWindow{} : windows_[static_cast<std::size_t>(table)];
  }
  bool keeps_window(int table) const { return table_window(table).held_by(budget(table)); }
  // How many of a table's `occupied` tokens have to be evicted.
  int due(const SlotTable& table, int t, int occupied, int coming, Phase phase) const;
  int due(const SlotTable& table, int t, int coming, Phase phase) const {
    return due(table, t, table.occupied() - outside_count(t), coming, phase);
  }
  static int count(const Victims& of, int table) {
    return static_cast<int>(of.drop[static_cast<std::size_t>(table)].size());
  }
  int outside_count(int table) const { return outside_.drop.empty() ? 0 : count(outside_, table); }  // with outside()
  Decision decide(const SlotTable& table, int t, int occupied, int coming, Phase phase) const;
  // Fills `chosen` with the `count` admitted tokens of the lowest scores, after the policy has scored them if it goes
  // by positions: tokens, or with mechanism `block` pages.
  void select_victims(SlotTable& table, int t, const Decision& decision, Phase phase, std::vector<int>& chosen) const;
  int interval(const SlotTable& table) const {
    return method_.schedule == Schedule::kPage ? method_.page_of(table.page_size()) : method_.interval;
  }
  bool drains(int table) const { return !draining_.empty() && draining_[static_cast<std::size_t>(table)] != 0; }
  void load_budgets(ByteReader& in, const HeadGeometry& geometry);
  bool moves() const { return method_.how().moves_rows; }
  PositionRange outside(const SlotTable& table, int t) const;
  void append_outside(const SlotTable& table, int t, int coming, Phase phase, std::vector<int>& chosen) const;
  void spare_some(std::vector<int>& chosen) const;
  bool by_page(Phase phase) const { return method_.how().whole_pages && phase == Phase::kDecode; }
  void find_next(const SlotTable& table, int t, int coming, Phase phase);

  static constexpr int kUnknown = -1;
  Method method_;
  std::vector<int> budgets_, first_budgets_;  // [table], now and at first
  std::vector<char> shared_;                  // [table] Method::splits_at_decisions: new budgets, to be met now
  Scorer scorer_;
  Victims outside_, victims_;
  std::vector<int> next_victim_;      // [table] selected by find_next(), or kUnknown
  std::vector<TableWindow> windows_;  // [table]; empty: no table has one
  // [table] with Method::max_drop: evictions have begun, and go on in each step until the budget is reached.
  std::vector<std::uint8_t> draining_, draining_next_;  // now, and once victims() are dropped
};

}  // namespace palimpsest
