#include "palimpsest/evict/evictor.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "palimpsest/core/error.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/evict/by_age.h"
#include "palimpsest/evict/out_of_window.h"

namespace palimpsest {
namespace {

// Whether two tables hold the same tokens, pages and order of free slots: then equal victims keep them equal.
bool alike(const SlotTable& a, const SlotTable& b, const MechanismTraits& how) {
  if (!std::ranges::equal(a.position(), b.position()) || a.free_slots() != b.free_slots()) return false;
  for (int page = 0; page < a.pages(); ++page)
    if (a.mapped(page) != b.mapped(page)) return false;
  if (how.moves_rows) return true;  // no order of free slots
  for (int i = 0; i < a.free_slots(); ++i)
    if (a.next_slot({}, i) != b.next_slot({}, i)) return false;
  return true;
}

}  // namespace

int Evictor::tokens_of_fullest(const Cache& cache) {
  int max = 0;
  for (int t = 0; t < cache.tables(); ++t)
    max = std::max(max, cache.table(t).occupied() + static_cast<int>(cache.next() - cache.table(t).next()));
  return max;
}

Evictor::Evictor(const MethodPlan& plan)
    : method_(plan.method()),
      budgets_(plan.budgets()),
      first_budgets_(budgets_),
      signals_(plan.signals()),
      window_(signals_),
      policy_(plan.policy()),
      windows_(plan.windows()) {
  assert(plan.prepared());
}

int Evictor::room(const Cache& cache) const {
  if (policy_ == nullptr) return INT32_MAX;
  int min = INT32_MAX;
  for (int t = 0; t < cache.tables(); ++t) {
    if (keeps_window(t)) continue;
    const int occupied = cache.table(t).occupied() - dropped(t);
    const int max = method_.schedule == Schedule::kPage
                        ? method_.target(budget(t)) + method_.page_of(cache.options().page_size)
                        : method_.max_tokens(budget(t));
    const bool returns = !returns_then_.empty() && returns_then_[static_cast<std::size_t>(t)] != 0;
    min = std::min(min, returns ? 1 : max - occupied);
  }
  return min;
}

int Evictor::room_for_out_of_window(const Cache& cache) const {
  int min = INT32_MAX;
  for (int t = 0; moves() && !windows_.empty() && t < cache.tables(); ++t)
    if (const SlotTable& table = cache.table(t); table_window(t).size != INT32_MAX)
      min = std::min(min, table.page_size() - (gone(t) > 0 ? 0 : count_out_of_window(table, outside(table, t))));
  return min;
}

PositionRange Evictor::outside(const SlotTable& table, int t) const {
  const TableWindow window = table_window(t);
  if (window.size == INT32_MAX) return {};
  return {window.sinks, table.next() - window.size + 1};
}

const Victims& Evictor::out_of_window(const Cache& cache, int coming, Phase phase) {
  outside_.drop.resize(static_cast<std::size_t>(cache.tables()));
  outside_.clear();
  if (windows_.empty()) return outside_;
  for (int t = 0; t < cache.tables(); ++t) {
    auto& chosen = outside_.drop[static_cast<std::size_t>(t)];
    append_outside(cache.table(t), t, coming, phase, chosen);
    if (moves() && !chosen.empty() && !next_victim_.empty()) next_victim_[static_cast<std::size_t>(t)] = kUnknown;
  }
  return outside_;
}

void Evictor::append_outside(const SlotTable& table, int t, int coming, Phase phase, std::vector<int>& chosen) const {
  const PositionRange outside = this->outside(table, t);
  if (outside.empty() || (keeps_window(t) && table.occupied() < table_window(t).size)) return;
  if (method_.how().whole_pages) {
    append_pages_out_of_window(table, outside, chosen);
    return;
  }
  // Heads are compared by what later queries see.
  const bool compares_heads = method_.splits_at_prompt_end() && phase == Phase::kPrefillEnd && coming == 0;
  if (!moves() || compares_heads || due(table, t, table.occupied(), coming, phase) > 0 ||
      count_out_of_window(table, outside) >= table.page_size())
    table.append_slots(outside, chosen);
}

void Evictor::outside_of(const SlotTable& table, int t, std::vector<int>& slots) const {
  slots.clear();
  if (!windows_.empty()) append_outside(table, t, 1, Phase::kDecode, slots);
}

void Evictor::victims_of(SlotTable& table, int t, int outside, std::vector<int>& slots) const {
  slots.clear();
  const int due = this->due(table, t, table.occupied() - outside, 1, Phase::kDecode);
  if (due == 0) return;
  assert(!signals_.at_decision() && !by_page(Phase::kDecode));
  if (signals_.positions_only())
    policy_->score({.position = table.position(), .inserted = static_cast<int>(table.inserted().size())},
                   table.score());
  choose(table, guard(table, budget(t)), limited(table, due, Phase::kDecode), slots);
}

bool Evictor::decides_beside(const Cache& cache, int coming, Phase phase) const {
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end()) return true;  // compares heads
  for (int t = 0; t < cache.tables(); ++t)
    if (gone(t) > 0 && decides_now(cache, t, coming, phase)) return true;
  return false;
}

void Evictor::committed() {
  outside_.clear();
  victims_.clear();
  shared_.clear();
  returns_ = returns_then_;
}

int Evictor::due(const SlotTable& table, int t, int occupied, int coming, Phase phase) const {
  if (policy_ == nullptr || keeps_window(t)) return 0;
  int interval = this->interval(table);
  if (method_.schedule == Schedule::kPrompt && phase != Phase::kPrefillEnd) return 0;
  if (method_.schedule == Schedule::kPromptStep) {
    if (phase == Phase::kPrefill) {
      if (method_.prompt_max == 0) return 0;
      // Heads' own budgets are not known before the prompt's end, if they are computed there.
      const bool alike = method_.splits_at_prompt_end();
      return std::max(0, occupied - (alike ? method_.prompt_max : method_.max_while_reading(budget(t))));
    }
    if (phase == Phase::kPrefillEnd) interval = 1;
  }
  if (method_.schedule == Schedule::kPage || method_.evict_after) coming = 0;
  const int over = occupied + coming - method_.target(budget(t));
  const bool shared = !shared_.empty() && shared_[at(t)] != 0;
  return over >= interval || returns(t) || shared ? std::max(over, 0) : 0;
}

int Evictor::limited(const SlotTable& table, int due, Phase phase) const {
  if (method_.max_drop == 0 || phase != Phase::kDecode) return due;
  return std::min(due, std::max(method_.max_drop, due - (interval(table) - 1)));
}

const Victims& Evictor::plan(Cache& cache, int coming, Phase phase, TableRange tables) {
  victims_.drop.resize(static_cast<std::size_t>(cache.tables()));
  victims_.clear();
  if (policy_ == nullptr) return victims_;
  next_victim_.resize(victims_.drop.size(), kUnknown);
  if (method_.max_drop > 0) returns_then_.resize(victims_.drop.size(), 0);
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end()) share_budgets(cache, tables);
  if (method_.splits_at_decisions()) share_at_decision(cache, coming, phase);
  for (int t = tables.first; t < std::min(tables.last, cache.tables()); ++t) {
    SlotTable& table = cache.table(t);
    const int due = this->due(table, t, coming, phase), count = limited(table, due, phase);
    if (!returns_then_.empty()) returns_then_[static_cast<std::size_t>(t)] = count < due;
    int& known = next_victim_[static_cast<std::size_t>(t)];
    auto& chosen = victims_.drop[static_cast<std::size_t>(t)];
    if (count == 1 && known != kUnknown && method_.overlap + method_.spare == 0) {
      chosen.push_back(known);
    } else if (count > 0) {
      if (signals_.positions_only())
        policy_->score({.position = table.position(), .inserted = static_cast<int>(table.inserted().size())},
                       table.score());
      if (by_page(phase))
        select_pages(table, guard(table, budget(t)), (count + table.evicted_page() - 1) / table.evicted_page(), chosen,
                     method_.scores_by_norms() ? table.column(table.columns() - 1) : std::span<const float>());
      else
        choose(table, guard(table, budget(t)), count, chosen);
    }
    known = kUnknown;
  }
  return victims_;
}

void Evictor::on_weights(Cache& cache, int t, const Rows& weights, std::span<const float> sums) {
  if (!decides(t)) return;
  SlotTable& table = cache.table(t);
  assert(weights.width >= std::ssize(table.score()) && !signals_.positions_only());
  assert(std::ssize(sums) == (signals_.sums() ? weights.width : 0));
  if (signals_.at_decision()) {
    if (MergedTokens* const merged = cache.merged(t)) add_to_window(signals_, window_, table, *merged, weights, sums);
    add_to_window(signals_, window_, table, weights, sums);
    return;
  }
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
  score_by_weights(table, t, weights);
  find_next(table, t, 1, Phase::kDecode);
}

bool Evictor::one_due(const Cache& cache) const {
  for (int t = 0; t < cache.tables(); ++t)
    if (const SlotTable& table = cache.table(t);
        !decides(t) || limited(table, due(table, t, table.occupied(), 1, Phase::kDecode), Phase::kDecode) != 1)
      return false;
  return true;
}

void Evictor::guard_of(const SlotTable& table, int t, std::span<float> mask) const {
  const Guard guard = this->guard(table, budget(t));
  const PositionView position = table.position();
  std::ranges::fill(mask, -std::numeric_limits<float>::infinity());
  for (int slot = 0; slot < table.slots(); ++slot)
    if (position[at(slot)] != kNoPosition && guard.admits(position[at(slot)])) mask[at(slot)] = 0;
}

std::optional<PositionRange> Evictor::victims_within(const SlotTable& table, int t) const {
  const Guard guard = this->guard(table, budget(t));
  if (!guard.pins.empty()) return {};
  return PositionRange{guard.first, std::max(guard.first, guard.last)};
}

bool Evictor::knows_next_victims() const {
  return !next_victim_.empty() && std::ranges::find(next_victim_, kUnknown) == next_victim_.end();
}

void Evictor::score_by_weights(SlotTable& table, int t, const Rows& weights) const {
  policy_->score({.position = table.position(),
                  .attention = weights[0],
                  .inserted = static_cast<int>(table.inserted().size()),
                  .table = t},
                 table.score());
}

void Evictor::find_next(const SlotTable& table, int t, int coming, Phase phase) {
  int& next = next_victim_[static_cast<std::size_t>(t)];
  next = kUnknown;
  if (method_.how().whole_pages) return;
  // out_of_window() drops those before the plan.
  const PositionRange outside = this->outside(table, t);
  const int due = this->due(table, t, table.occupied() - count_out_of_window(table, outside), coming, phase);
  if (limited(table, due, phase) != 1) return;
  Guard guard = this->guard(table, budget(t));
  guard.first = std::max(guard.first, outside.last);
  next = select_lowest(columns_of(table), guard);
}

void Evictor::on_insert_kv(Cache& cache, int t, Rows keys, Rows values) {
  if (!decides(t)) return;
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
  SlotTable& table = cache.table(t);
  score_inserted(table, t, keys, values);
  if (!signals_.insert_score) find_next(table, t, 1, Phase::kDecode);
}

void Evictor::score_inserted(SlotTable& table, int t, Rows keys, Rows values) const {
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
  if (method_.scores_by_norms()) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto key = keys[static_cast<int>(i)];
      score[i] = dot(key, key);
    }
    store(table.column(table.columns() - 1));
  }
}

bool Evictor::needs_eviction(const Cache& cache, int t, int coming, Phase phase) const {
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end())  // heads are compared
    return tokens_of_fullest(cache) > method_.target() || due(cache.table(t), t, coming, phase) > 0;
  return decides_now(cache, t, coming, phase);
}

void Evictor::score_table(Cache& cache, int t, Rows keys, Rows values, int coming, Phase phase,
                          const ExpectedQueries& queries, const Interrupt* interrupt) {
  SlotTable& table = cache.table(t);
  assert(signals_.at_decision() && static_cast<std::size_t>(t) < next_victim_.size());
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
  find_next(table, t, coming, phase);
}

void Evictor::score(const HeadView& view, std::span<float> score) const {
  if (signals_.ordered)
    score_in_order(view, score);
  else
    policy_->score(view, score);
}

// Scores the occupied slots, oldest token first.
void Evictor::score_in_order(HeadView view, std::span<float> score) const {
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

void Evictor::invalidate_window(Cache& cache) {
  window_.clear();
  const auto parts = static_cast<std::size_t>(signals_.parts());
  for (int t = 0; t < cache.tables(); ++t) {
    for (std::size_t c = 0; c < parts; ++c) std::ranges::fill(cache.table(t).column(static_cast<int>(c)), 0.0F);
    MergedTokens* const merged = cache.merged(t);
    for (std::size_t i = 0; merged != nullptr && i < merged->tokens().size(); ++i)
      std::ranges::fill(merged->statistics(i).first(parts), 0.0F);
  }
}

void Evictor::invalidate(const Cache& cache) {
  next_victim_.assign(static_cast<std::size_t>(cache.tables()), kUnknown);
  if (method_.max_drop > 0) returns_then_.assign(static_cast<std::size_t>(cache.tables()), 0);
  committed();
}

void Evictor::release(TableRange tables) {
  for (int t = tables.first; t < std::min(tables.last, static_cast<int>(victims_.drop.size())); ++t)
    std::vector<int>().swap(victims_.drop[at(t)]);
}

void Evictor::clear(const Cache& cache) {
  budgets_ = first_budgets_;
  window_.clear();
  invalidate(cache);
}

void Evictor::save(ByteWriter& out) const {
  if (method_.budgets_change()) out.array(std::span<const int>(budgets_));
  if (signals_.attention_window) window_.save(out);
  if (method_.max_drop > 0) out.array(std::span<const std::uint8_t>(returns_));
}

void Evictor::load(ByteReader& in, const Cache& cache) {
  const HeadGeometry& geometry = cache.geometry();
  for (int t = 0; signals_.whole_layer() && t < cache.tables(); ++t)
    in.require(alike(cache.table(t), cache.table(geometry.first_head(geometry.layer_of(t))),
                     traits(cache.options().mechanism)),
               "heads of a layer that keep different tokens");
  if (method_.budgets_change()) load_budgets(in, geometry);
  // Earlier versions saved neither of these; the rest is the checksum then.
  const auto saved = [&] { return in.left() > sizeof(std::uint64_t); };
  if (signals_.attention_window && saved())
    window_.load(in);
  else
    window_.assume(cache.next());
  if (method_.max_drop == 0 || !saved()) return;
  std::vector<std::uint8_t> returns = in.array<std::uint8_t>();
  in.require(returns.size() == static_cast<std::size_t>(cache.tables()), "evictions of other tables");
  returns_ = returns_then_ = std::move(returns);
}

Guard Evictor::guard(const SlotTable& table, int budget) const {
  return {.first = method_.sinks(), .last = table.next() - method_.recent(budget), .pins = method_.pins()};
}

void Evictor::choose(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen) const {
  select_lowest(columns_of(table), guard, count + method_.overlap + method_.spare, chosen);
  chosen.resize(chosen.size() - static_cast<std::size_t>(method_.overlap));
  if (method_.spare > 0) spare_some(chosen);
}

// Removes `spare` victims from `chosen`, evenly spaced by age. Lazy Pruning names such tokens ("non-core retained
// tokens") and their share of the budget, but not how they are chosen.
void Evictor::spare_some(std::vector<int>& chosen) const {
  const std::size_t all = chosen.size(), spared = static_cast<std::size_t>(method_.spare);
  std::size_t kept = 0;
  for (std::size_t i = 0, next = 0; i < all; ++i) {
    if (next < spared && i == (2 * next + 1) * all / (2 * spared)) {
      ++next;
      continue;
    }
    chosen[kept++] = chosen[i];
  }
  chosen.resize(kept);
}

}  // namespace palimpsest
