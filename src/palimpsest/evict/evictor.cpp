#include "palimpsest/evict/evictor.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "palimpsest/budget/ada.h"
#include "palimpsest/budget/pyramid.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/evict/by_age.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/unseen.h"

namespace palimpsest {
namespace {

// Whether two tables hold the same tokens, pages and order of free slots: then equal victims keep them equal.
bool alike(const SlotTable& a, const SlotTable& b, Mechanism mechanism) {
  if (!std::ranges::equal(a.position(), b.position()) || a.free_slots() != b.free_slots()) return false;
  for (int page = 0; page < a.pages(); ++page)
    if (a.mapped(page) != b.mapped(page)) return false;
  if (mechanism == Mechanism::kShift || mechanism == Mechanism::kGather) return true;  // no order of free slots
  for (int i = 0; i < a.free_slots(); ++i)
    if (a.next_slot({}, i) != b.next_slot({}, i)) return false;
  return true;
}

}  // namespace

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

Evictor::Evictor(const Method& method, std::vector<int> budgets)
    : method_(method), budgets_(std::move(budgets)), first_budgets_(budgets_), window_(signals_) {
  check_legal(Scope::kMethod, {.method = method});
  if (method.evicts()) {
    policy_ = make_policy(method.policy, method.of_policy);
    signals_ = policy_->signals();
    window_ = WindowParts(signals_);
  }
  check_legal(Scope::kPolicy, {.method = method, .signals = signals_});
}

int Evictor::room(const Cache& cache) const {
  if (policy_ == nullptr) return INT32_MAX;
  int min = INT32_MAX;
  for (int t = 0; t < cache.tables(); ++t) {
    if (keeps_window(t)) continue;
    const int occupied = cache.table(t).occupied();
    const int max = method_.schedule == Schedule::kPage
                        ? method_.target(budget(t)) + method_.page_of(cache.options().page_size)
                        : method_.max_tokens(budget(t));
    min = std::min(min, returns(t) ? 1 : max - occupied);
  }
  return min;
}

int Evictor::room_for_unseen(const Cache& cache) const {
  int min = INT32_MAX;
  for (int t = 0; moves() && !windows_.empty() && t < cache.tables(); ++t)
    if (const SlotTable& table = cache.table(t); table_window(t).size != INT32_MAX)
      min = std::min(min, table.page_size() - count_unseen(table, outside(table, t)));
  return min;
}

PositionRange Evictor::outside(const SlotTable& table, int t) const {
  const TableWindow window = table_window(t);
  if (window.size == INT32_MAX) return {};
  return {window.sinks, table.next() - window.size + 1};
}

const Plan& Evictor::unseen(const Cache& cache, int coming, Phase phase) {
  plan_.drop.resize(static_cast<std::size_t>(cache.tables()));
  plan_.clear();
  if (windows_.empty()) return plan_;
  const bool by_page = method_.mechanism == Mechanism::kBlock;
  // Heads are compared by what later queries see.
  const bool compares_heads = method_.splits_at_prompt_end() && phase == Phase::kPrefillEnd && coming == 0;
  for (int t = 0; t < cache.tables(); ++t) {
    const SlotTable& table = cache.table(t);
    const PositionRange outside = this->outside(table, t);
    if (outside.empty() || (keeps_window(t) && table.occupied() < table_window(t).size)) continue;
    auto& chosen = plan_.drop[static_cast<std::size_t>(t)];
    if (by_page) {
      append_unseen_pages(table, outside, chosen);
      continue;
    }
    if (!moves() || compares_heads || due(table, t, coming, phase) > 0 ||
        count_unseen(table, outside) >= table.page_size())
      table.append_slots(outside, chosen);
    if (moves() && !chosen.empty() && !next_victim_.empty()) next_victim_[static_cast<std::size_t>(t)] = kUnknown;
  }
  return plan_;
}

int Evictor::due(const SlotTable& table, int t, int occupied, int coming, Phase phase) const {
  if (policy_ == nullptr || keeps_window(t)) return 0;
  int interval = this->interval(table);
  if (method_.schedule == Schedule::kPrompt && phase != Phase::kPrefillEnd) return 0;
  if (method_.schedule == Schedule::kPromptStep) {
    if (phase == Phase::kPrefill) return 0;
    if (phase == Phase::kPrefillEnd) interval = 1;
  }
  if (method_.schedule == Schedule::kPage || method_.evict_after) coming = 0;
  const int over = occupied + coming - method_.target(budget(t));
  return over >= interval || returns(t) ? std::max(over, 0) : 0;
}

int Evictor::limited(const SlotTable& table, int due, Phase phase) const {
  if (method_.max_drop == 0 || phase != Phase::kDecode) return due;
  return std::min(due, std::max(method_.max_drop, due - (interval(table) - 1)));
}

const Plan& Evictor::plan(Cache& cache, int coming, Phase phase) {
  plan_.drop.resize(static_cast<std::size_t>(cache.tables()));
  plan_.clear();
  if (policy_ == nullptr) return plan_;
  next_victim_.resize(plan_.drop.size(), kUnknown);
  if (method_.max_drop > 0) returns_.resize(plan_.drop.size(), 0);
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end()) share_budgets(cache);
  for (int t = 0; t < cache.tables(); ++t) {
    SlotTable& table = cache.table(t);
    const int due = this->due(table, t, coming, phase), count = limited(table, due, phase);
    if (!returns_.empty()) returns_[static_cast<std::size_t>(t)] = count < due;
    int& known = next_victim_[static_cast<std::size_t>(t)];
    auto& chosen = plan_.drop[static_cast<std::size_t>(t)];
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
  return plan_;
}

void Evictor::share_budgets(const Cache& cache) {
  const HeadGeometry& geometry = cache.geometry();
  assert(cache.tables() == geometry.heads() && budgets_.size() == static_cast<std::size_t>(geometry.heads()));
  std::ranges::fill(next_victim_, kUnknown);
  if (cache.occupied() <= method_.budget) {  // at most the slack is evicted
    std::ranges::fill(budgets_, method_.budget);
    return;
  }
  if (method_.split == "ada") {
    for (int layer = 0; layer < geometry.layers(); ++layer) share_by_scores(cache, layer);
    return;
  }
  const auto of_layer = pyramid_budgets(method_.budget, method_.sinks() + method_.recent() + method_.pinned(),
                                        geometry.layers(), cache.occupied());
  for (std::size_t t = 0; t < budgets_.size(); ++t)
    budgets_[t] = of_layer[static_cast<std::size_t>(geometry.layer_of(static_cast<int>(t)))];
}

// The budgets of one layer's heads. All heads protect the same tokens.
void Evictor::share_by_scores(const Cache& cache, int layer) {
  const int heads = cache.geometry().layer(layer).kv_heads, first = cache.geometry().first_head(layer);
  if (heads == 0) return;
  std::vector<std::vector<float>> scores(static_cast<std::size_t>(heads));
  int protected_tokens = 0, occupied = 0;                 // of all heads
  if (cache.table(first).occupied() <= method_.budget) {  // all heads of a layer hold the same number of tokens
    for (int h = 0; h < heads; ++h) budgets_[static_cast<std::size_t>(first + h)] = method_.budget;
    return;
  }
  for (int h = 0; h < heads; ++h) {
    const SlotTable& table = cache.table(first + h);
    const Guard guard = this->guard(table, method_.budget);
    const PositionView position = table.position();
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (guard.admits(position[slot])) scores[static_cast<std::size_t>(h)].push_back(table.score()[slot]);
    protected_tokens += table.occupied() - static_cast<int>(scores[static_cast<std::size_t>(h)].size());
    occupied += table.occupied();
  }
  const std::vector<int> counts =
      ada_counts(scores, std::min(occupied, heads * method_.budget) - protected_tokens, method_.set_aside() + 1);
  for (int h = 0; h < heads; ++h) {
    const SlotTable& table = cache.table(first + h);
    const int guarded = table.occupied() - static_cast<int>(scores[static_cast<std::size_t>(h)].size());
    budgets_[static_cast<std::size_t>(first + h)] = guarded + counts[static_cast<std::size_t>(h)];
  }
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
  policy_->score({.position = table.position(),
                  .attention = weights[0],
                  .inserted = static_cast<int>(table.inserted().size()),
                  .table = t},
                 table.score());
  find_next(table, t, 1, Phase::kDecode);
}

void Evictor::find_next(const SlotTable& table, int t, int coming, Phase phase) {
  int& next = next_victim_[static_cast<std::size_t>(t)];
  next = kUnknown;
  if (method_.mechanism == Mechanism::kBlock) return;
  // unseen() drops those before the plan.
  const PositionRange outside = this->outside(table, t);
  const int due = this->due(table, t, table.occupied() - count_unseen(table, outside), coming, phase);
  if (limited(table, due, phase) != 1) return;
  Guard guard = this->guard(table, budget(t));
  guard.first = std::max(guard.first, outside.last);
  next = select_lowest(columns_of(table), guard);
}

void Evictor::on_insert_kv(Cache& cache, int t, Rows keys, Rows values) {
  if (!decides(t)) return;
  SlotTable& table = cache.table(t);
  const auto slots = table.inserted();
  assert(static_cast<std::size_t>(keys.count) == slots.size() && signals_.reads_inserted());
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
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
  find_next(table, t, 1, Phase::kDecode);
}

bool Evictor::needs_eviction(const Cache& cache, int t, int coming, Phase phase) const {
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end())  // heads are compared
    return cache.occupied() > method_.target();
  return due(cache.table(t), t, coming, phase) > 0;
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
  if (method_.max_drop > 0) returns_.assign(static_cast<std::size_t>(cache.tables()), 0);
}

void Evictor::clear(const Cache& cache) {
  budgets_ = first_budgets_;
  window_.clear();
  invalidate(cache);
}

void Evictor::save(ByteWriter& out) const {
  if (method_.splits_at_prompt_end()) out.array(std::span<const int>(budgets_));
  if (signals_.attention_window) window_.save(out);
  if (method_.max_drop > 0) out.array(std::span<const std::uint8_t>(returns_));
}

void Evictor::load(ByteReader& in, const Cache& cache) {
  const HeadGeometry& geometry = cache.geometry();
  for (int t = 0; signals_.whole_layer() && t < cache.tables(); ++t)
    in.require(alike(cache.table(t), cache.table(geometry.first_head(geometry.layer_of(t))), cache.options().mechanism),
               "heads of a layer that keep different tokens");
  if (method_.splits_at_prompt_end()) load_budgets(in, geometry);
  // Earlier versions saved neither of these; the rest is the checksum then.
  const auto saved = [&] { return in.left() > sizeof(std::uint64_t); };
  if (signals_.attention_window && saved())
    window_.load(in);
  else
    window_.assume(cache.next());
  if (method_.max_drop == 0 || !saved()) return;
  std::vector<std::uint8_t> returns = in.array<std::uint8_t>();
  in.require(returns.size() == static_cast<std::size_t>(cache.tables()), "evictions of other tables");
  returns_ = std::move(returns);
}

void Evictor::load_budgets(ByteReader& in, const HeadGeometry& geometry) {
  std::vector<int> budgets = in.array<int>();
  const int min = method_.sinks() + method_.recent() + method_.pinned();
  in.require(budgets.size() == budgets_.size() && std::ranges::all_of(budgets, [&](int b) { return b > min; }) &&
                 std::accumulate(budgets.begin(), budgets.end(), 0LL) <=
                     (method_.budget + static_cast<long long>(geometry.layers())) * std::ssize(budgets),
             "budgets of heads that do not fit");
  budgets_ = std::move(budgets);
}

Guard Evictor::guard(const SlotTable& table, int budget) const {
  return {.first = method_.sinks(), .last = table.next() - method_.recent(budget), .pins = method_.pins()};
}

void Evictor::choose(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen) {
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
