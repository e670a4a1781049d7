// Gives tokens their scores: calls the policy with what a step reported (attention weights, keys and values of new
// tokens) or what a decision looks at (all keys and values of a table), and stores its scores in the slot tables. Which
// tokens go is decided by scores elsewhere (evict/evictor.h).
#pragma once

#include <memory>
#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/evict/attention_window.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

class Scorer {
 public:
  explicit Scorer(const MethodPlan& plan);

  const Signals& signals() const { return signals_; }
  bool has_policy() const { return policy_ != nullptr; }  // false: nothing is ever evicted

  // Scores that follow from positions; nothing for policies that read more.
  void score_positions(SlotTable& table, int t) const;
  // By a step's attention weights, and by keys and values of the tokens that it inserted, oldest first: to `table`,
  // table `t` or a copy.
  // Requires: !signals().at_decision().
  void score_by_weights(SlotTable& table, int t, const Rows& weights) const;
  void score_inserted(SlotTable& table, int t, Rows keys, Rows values) const;
  // By what a decision looks at: keys and values of all slots if signals() has them; they may be empty if reads_rows()
  // says so. Threads may call it for different tables at the same time; tables of one layer whose heads share a
  // decision (AttentionWindow::whole_layer) only read each other's columns.
  // Requires: signals().at_decision().
  void score_table(Cache& cache, int t, Rows keys, Rows values, const ExpectedQueries& queries,
                   const Interrupt* interrupt) const;
  bool reads_rows(const Cache& cache, int table) const {
    return policy_->reads_rows(cache.table(table).position(), cache.table(table).score());
  }

  // The window of the last queries. Before a step whose weights are collected: its `count` queries are the newest.
  // `left`: tokens of the prompt after them; -1: in decode. The step's weights are summed over the queries of each row
  // (window().rows()).
  void count_queries(int count, long long left) { window_.add(count, left); }
  const WindowParts& window() const { return window_; }
  // The next steps' queries follow those of `window`, an earlier window(): other layers meet the same tokens.
  void set_window(const WindowParts& window) { window_ = window; }
  // Adds a step's weights, reduced over the query group, to the window's columns of a table.
  void add_to_window(Cache& cache, int t, const Rows& weights, std::span<const float> sums) const;
  // The cache became a copy of one that read a prompt's first `tokens` tokens, in chunks.
  void continue_window(long long tokens, int chunk) { window_.repeat(tokens, chunk); }
  // Clears the window and its columns, after steps whose weights were not collected.
  void invalidate_window(Cache& cache);
  void clear_window() { window_.clear(); }
  void save_window(ByteWriter& out) const;
  // `saved`: earlier versions saved no window; then it is as after `next` tokens.
  void load_window(ByteReader& in, Position next, bool saved);

 private:
  void score(const HeadView& view, std::span<float> score) const;
  void score_in_order(HeadView view, std::span<float> score) const;

  Signals signals_;
  bool norms_;  // Method::scores_by_norms
  WindowParts window_;
  std::shared_ptr<const Policy> policy_;
};

}  // namespace palimpsest
