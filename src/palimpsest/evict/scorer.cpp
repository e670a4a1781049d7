#include "palimpsest/evict/scorer.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "palimpsest/core/vectors.h"
#include "palimpsest/evict/by_age.h"

namespace palimpsest {

Scorer::Scorer(const MethodPlan& plan)
    : signals_(plan.signals()), norms_(plan.method().scores_by_norms()), window_(signals_), policy_(plan.policy()) {}

void Scorer::score_positions(SlotTable& table, int t) const {
  if (!signals_.positions_only()) return;
  policy_->score({.position = table.position(), .inserted = static_cast<int>(table.inserted().size()), .table = t},
                 table.score());
}

void Scorer::add_to_window(Cache& cache, int t, const Rows& weights, std::span<const float> sums) const {
  SlotTable& table = cache.table(t);
  if (MergedTokens* const merged = cache.merged(t))
    palimpsest::add_to_window(signals_, window_, table, *merged, weights, sums);
  palimpsest::add_to_window(signals_, window_, table, weights, sums);
}

void Scorer::score_by_weights(SlotTable& table, int t, const Rows& weights) const {
  policy_->score({.position = table.position(),
                  .attention = weights[0],
                  .inserted = static_cast<int>(table.inserted().size()),
                  .table = t},
                 table.score());
}

void Scorer::score_inserted(SlotTable& table, int t, Rows keys, Rows values) const {
  const auto slots = table.inserted();
  assert(static_cast<std::size_t>(keys.count) == slots.size() && signals_.reads_inserted());
  thread_local std::vector<Position> position;
  thread_local std::vector<float> score;
  position.clear();
  for (const int slot : slots) position.push_back(table.position(slot));
  score.assign(slots.size(), 0);
  HeadView view = {.position = position, .inserted = static_cast<int>(slots.size()), .table = t};
  const auto store = [&](std::span<float> column) {
    for (std::size_t i = 0; i < slots.size(); ++i) column[static_cast<std::size_t>(slots[i])] = score[i];
  };
  if (signals_.insert_score) {
    view.keys = keys;
    view.values = values;
    policy_->score_inserted(view, score);
    store(table.column(signals_.insert_column()));
    return;
  }
  if (signals_.keys) view.keys = keys;
  if (signals_.values) view.values = values;
  policy_->score(view, score);
  store(table.score());
  if (norms_) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto key = keys[static_cast<int>(i)];
      score[i] = dot(key, key);
    }
    store(table.column(table.columns() - 1));
  }
}

void Scorer::score_table(Cache& cache, int t, Rows keys, Rows values, const ExpectedQueries& queries,
                         const Interrupt* interrupt) const {
  SlotTable& table = cache.table(t);
  assert(signals_.at_decision());
  assert(keys.count == (signals_.keys ? table.slots() : 0) || (keys.empty() && !reads_rows(cache, t)));
  assert(values.count == (signals_.values ? table.slots() : 0) || (values.empty() && !reads_rows(cache, t)));
  thread_local std::vector<Position> position;
  thread_local std::vector<float> attention, sums, scores;
  HeadView view = {.position = table.position(),
                   .keys = keys,
                   .values = values,
                   .inserted = static_cast<int>(table.inserted().size()),
                   .table = t,
                   .queries = queries,
                   .interrupt = interrupt};
  attention.clear();  // thread_local: may hold another policy's
  if (signals_.attention_window) window_sum(signals_, cache, t, attention);
  if (signals_.sums()) view.attention_sum = table.column(signals_.sum_column());
  if (signals_.insert_score) view.insert_score = table.column(signals_.insert_column());
  MergedTokens* const merged = cache.merged(t);
  if (merged == nullptr || merged->tokens().empty()) {
    view.attention = attention;
    score(view, table.score());
  } else {  // merged tokens follow the slots
    const auto slots = static_cast<std::size_t>(table.slots());
    position.clear();
    for (const Position p : table.position()) position.push_back(p);
    sums.assign(view.attention_sum.begin(), view.attention_sum.end());
    scores.assign(table.score().begin(), table.score().end());
    for (std::size_t i = 0; i < merged->tokens().size(); ++i) {
      if (!merged->tokens()[i].in_cluster()) continue;  // keeps its last score
      const auto statistics = merged->statistics(i);
      const auto parts = statistics.first(static_cast<std::size_t>(signals_.parts()));
      position.push_back(merged->tokens()[i].position);
      if (!attention.empty()) attention.push_back(std::accumulate(parts.begin(), parts.end(), 0.0F));
      if (signals_.sums()) sums.push_back(statistics[static_cast<std::size_t>(signals_.sum_column())]);
      scores.push_back(merged->tokens()[i].score);
    }
    view.position = position;
    view.attention = attention;
    view.attention_sum = sums;
    score(view, scores);
    std::copy_n(scores.begin(), slots, table.score().begin());
    std::size_t next = slots;
    for (MergedToken& token : merged->tokens())
      if (token.in_cluster()) token.score = scores[next++];
  }
}

void Scorer::score(const HeadView& view, std::span<float> score) const {
  if (signals_.ordered)
    score_in_order(view, score);
  else
    policy_->score(view, score);
}

// Scores the occupied slots, oldest token first.
void Scorer::score_in_order(HeadView view, std::span<float> score) const {
  thread_local std::vector<int> order;
  thread_local std::vector<Position> position;
  thread_local std::vector<float> attention, sums, inserted, scores, keys, values;
  order_by_age(view.position, order);

  const auto pick = [](const auto& from, auto& to) {
    to.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) to[i] = from[static_cast<std::size_t>(order[i])];
  };
  const auto pick_rows = [](Rows& rows, std::vector<float>& to) {
    if (rows.empty()) return;
    to.clear();
    for (const int slot : order) to.insert(to.end(), rows[slot].begin(), rows[slot].end());
    rows = {to.data(), static_cast<int>(order.size()), rows.width, rows.width};
  };
  pick(view.position, position);
  pick(score, scores);
  if (!view.attention.empty()) {
    pick(view.attention, attention);
    view.attention = attention;
  }
  if (!view.attention_sum.empty()) {
    pick(view.attention_sum, sums);
    view.attention_sum = sums;
  }
  if (!view.insert_score.empty()) {
    pick(view.insert_score, inserted);
    view.insert_score = inserted;
  }
  view.position = position;
  pick_rows(view.keys, keys);
  pick_rows(view.values, values);
  policy_->score(view, scores);
  for (std::size_t i = 0; i < order.size(); ++i) score[static_cast<std::size_t>(order[i])] = scores[i];
}

void Scorer::invalidate_window(Cache& cache) {
  window_.clear();
  const auto parts = static_cast<std::size_t>(signals_.parts());
  for (int t = 0; t < cache.tables(); ++t) {
    for (std::size_t c = 0; c < parts; ++c) std::ranges::fill(cache.table(t).column(static_cast<int>(c)), 0.0F);
    MergedTokens* const merged = cache.merged(t);
    for (std::size_t i = 0; merged != nullptr && i < merged->tokens().size(); ++i)
      std::ranges::fill(merged->statistics(i).first(parts), 0.0F);
  }
}

void Scorer::save_window(ByteWriter& out) const {
  if (signals_.attention_window) window_.save(out);
}

void Scorer::load_window(ByteReader& in, Position next, bool saved) {
  if (signals_.attention_window && saved)
    window_.load(in);
  else
    window_.assume(next);
}

}  // namespace palimpsest
