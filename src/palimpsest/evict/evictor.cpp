#include "palimpsest/evict/evictor.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/core/error.h"
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
      scorer_(plan),
      windows_(plan.windows()) {
  assert(plan.prepared());
}

int Evictor::room(const Cache& cache) const {
  if (!scorer_.has_policy()) return INT32_MAX;
  int min = INT32_MAX;
  for (int t = 0; t < cache.tables(); ++t) {
    if (keeps_window(t)) continue;
    const int occupied = cache.table(t).occupied() - dropped(t);
    const int max = method_.schedule == Schedule::kPage
                        ? method_.target(budget(t)) + method_.page_of(cache.options().page_size)
                        : method_.max_tokens(budget(t));
    const bool drains = !draining_next_.empty() && draining_next_[static_cast<std::size_t>(t)] != 0;
    min = std::min(min, drains ? 1 : max - occupied);
  }
  return min;
}

int Evictor::room_for_out_of_window(const Cache& cache) const {
  int min = INT32_MAX;
  for (int t = 0; moves() && !windows_.empty() && t < cache.tables(); ++t)
    if (const SlotTable& table = cache.table(t); table_window(t).size != INT32_MAX)
      min =
          std::min(min, table.page_size() - (outside_count(t) > 0 ? 0 : count_out_of_window(table, outside(table, t))));
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
  const Decision decision = decide(table, t, table.occupied() - outside, 1, Phase::kDecode);
  if (decision.count == 0) return;
  assert(!signals().at_decision() && !by_page(Phase::kDecode));
  select_victims(table, t, decision, Phase::kDecode, slots);
}

bool Evictor::decides_beside(const Cache& cache, int coming, Phase phase) const {
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end()) return true;  // compares heads
  for (int t = 0; t < cache.tables(); ++t)
    if (outside_count(t) > 0 && decides_now(cache, t, coming, phase)) return true;
  return false;
}

void Evictor::committed() {
  outside_.clear();
  victims_.clear();
  shared_.clear();
  draining_ = draining_next_;
}

int Evictor::due(const SlotTable& table, int t, int occupied, int coming, Phase phase) const {
  if (!scorer_.has_policy() || keeps_window(t)) return 0;
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
  return over >= interval || drains(t) || shared ? std::max(over, 0) : 0;
}

Decision Evictor::decide(const SlotTable& table, int t, int occupied, int coming, Phase phase) const {
  Decision decision;
  decision.due = decision.count = due(table, t, occupied, coming, phase);
  if (decision.due == 0) return decision;
  if (method_.max_drop > 0 && phase == Phase::kDecode)
    decision.count = std::min(decision.due, std::max(method_.max_drop, decision.due - (interval(table) - 1)));
  decision.guard = guard(table, t);
  return decision;
}

void Evictor::select_victims(SlotTable& table, int t, const Decision& decision, Phase phase,
                             std::vector<int>& chosen) const {
  scorer_.score_positions(table, t);
  if (by_page(phase)) {
    select_pages(table, decision.guard, (decision.count + table.evicted_page() - 1) / table.evicted_page(), chosen,
                 method_.scores_by_norms() ? table.column(table.columns() - 1) : std::span<const float>());
    return;
  }
  select_lowest(columns_of(table), decision.guard, decision.count + method_.overlap + method_.spare, chosen);
  chosen.resize(chosen.size() - static_cast<std::size_t>(method_.overlap));
  if (method_.spare > 0) spare_some(chosen);
}

const Victims& Evictor::plan(Cache& cache, int coming, Phase phase, TableRange tables) {
  victims_.drop.resize(static_cast<std::size_t>(cache.tables()));
  victims_.clear();
  if (!scorer_.has_policy()) return victims_;
  next_victim_.resize(victims_.drop.size(), kUnknown);
  if (method_.max_drop > 0) draining_next_.resize(victims_.drop.size(), 0);
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end()) share_budgets(cache, tables);
  if (method_.splits_at_decisions()) share_at_decision(cache, coming, phase);
  for (int t = tables.first; t < std::min(tables.last, cache.tables()); ++t) {
    SlotTable& table = cache.table(t);
    const Decision decision = decide(table, t, table.occupied() - outside_count(t), coming, phase);
    if (!draining_next_.empty()) draining_next_[static_cast<std::size_t>(t)] = decision.count < decision.due;
    int& known = next_victim_[static_cast<std::size_t>(t)];
    auto& chosen = victims_.drop[static_cast<std::size_t>(t)];
    if (decision.count == 1 && known != kUnknown && method_.overlap + method_.spare == 0)
      chosen.push_back(known);
    else if (decision.count > 0)
      select_victims(table, t, decision, phase, chosen);
    known = kUnknown;
  }
  return victims_;
}

void Evictor::on_weights(Cache& cache, int t, const Rows& weights, std::span<const float> sums) {
  if (!decides(t)) return;
  SlotTable& table = cache.table(t);
  assert(weights.width >= std::ssize(table.score()) && !signals().positions_only());
  assert(std::ssize(sums) == (signals().sums() ? weights.width : 0));
  if (signals().at_decision()) {
    scorer_.add_to_window(cache, t, weights, sums);
    return;
  }
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
  scorer_.score_by_weights(table, t, weights);
  find_next(table, t, 1, Phase::kDecode);
}

bool Evictor::one_due(const Cache& cache) const {
  for (int t = 0; t < cache.tables(); ++t)
    if (const SlotTable& table = cache.table(t);
        !decides(t) || decide(table, t, table.occupied(), 1, Phase::kDecode).count != 1)
      return false;
  return true;
}

bool Evictor::knows_next_victims() const {
  return !next_victim_.empty() && std::ranges::find(next_victim_, kUnknown) == next_victim_.end();
}

void Evictor::find_next(const SlotTable& table, int t, int coming, Phase phase) {
  int& next = next_victim_[static_cast<std::size_t>(t)];
  next = kUnknown;
  if (method_.how().whole_pages) return;
  // out_of_window() drops those before the plan.
  const PositionRange outside = this->outside(table, t);
  Decision decision = decide(table, t, table.occupied() - count_out_of_window(table, outside), coming, phase);
  if (decision.count != 1) return;
  decision.guard.first = std::max(decision.guard.first, outside.last);
  next = select_lowest(columns_of(table), decision.guard);
}

void Evictor::on_insert_kv(Cache& cache, int t, Rows keys, Rows values) {
  if (!decides(t)) return;
  assert(static_cast<std::size_t>(t) < next_victim_.size() && "plan() first");
  SlotTable& table = cache.table(t);
  scorer_.score_inserted(table, t, keys, values);
  if (!signals().insert_score) find_next(table, t, 1, Phase::kDecode);
}

bool Evictor::needs_eviction(const Cache& cache, int t, int coming, Phase phase) const {
  if (phase == Phase::kPrefillEnd && coming == 0 && method_.splits_at_prompt_end())  // heads are compared
    return tokens_of_fullest(cache) > method_.target() || due(cache.table(t), t, coming, phase) > 0;
  return decides_now(cache, t, coming, phase);
}

void Evictor::score_table(Cache& cache, int t, Rows keys, Rows values, int coming, Phase phase,
                          const ExpectedQueries& queries, const Interrupt* interrupt) {
  assert(static_cast<std::size_t>(t) < next_victim_.size());
  scorer_.score_table(cache, t, keys, values, queries, interrupt);
  find_next(cache.table(t), t, coming, phase);
}

void Evictor::invalidate(const Cache& cache) {
  next_victim_.assign(static_cast<std::size_t>(cache.tables()), kUnknown);
  if (method_.max_drop > 0) draining_next_.assign(static_cast<std::size_t>(cache.tables()), 0);
  committed();
}

void Evictor::release(TableRange tables) {
  for (int t = tables.first; t < std::min(tables.last, static_cast<int>(victims_.drop.size())); ++t)
    std::vector<int>().swap(victims_.drop[at(t)]);
}

void Evictor::clear(const Cache& cache) {
  budgets_ = first_budgets_;
  scorer_.clear_window();
  invalidate(cache);
}

void Evictor::save(ByteWriter& out) const {
  if (method_.budgets_change()) out.array(std::span<const int>(budgets_));
  scorer_.save_window(out);
  if (method_.max_drop > 0) out.array(std::span<const std::uint8_t>(draining_));
}

void Evictor::load(ByteReader& in, const Cache& cache) {
  const HeadGeometry& geometry = cache.geometry();
  for (int t = 0; signals().whole_layer() && t < cache.tables(); ++t)
    in.require(alike(cache.table(t), cache.table(geometry.first_head(geometry.layer_of(t))),
                     traits(cache.options().mechanism)),
               "heads of a layer that keep different tokens");
  if (method_.budgets_change()) load_budgets(in, geometry);
  // Earlier versions saved neither of these; the rest is the checksum then.
  const auto saved = [&] { return in.left() > sizeof(std::uint64_t); };
  scorer_.load_window(in, cache.next(), saved());
  if (method_.max_drop == 0 || !saved()) return;
  std::vector<std::uint8_t> drains = in.array<std::uint8_t>();
  in.require(drains.size() == static_cast<std::size_t>(cache.tables()), "evictions of other tables");
  draining_ = draining_next_ = std::move(drains);
}

Guard Evictor::guard(const SlotTable& table, int t) const {
  return {.first = method_.sinks(), .last = table.next() - method_.recent(budget(t)), .pins = method_.pins()};
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
