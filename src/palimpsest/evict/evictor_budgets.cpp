// Budgets of heads that are computed at a prompt's end or at each decision (Method::budgets_change).
#include <algorithm>
#include <cassert>
#include <numeric>

#include "palimpsest/budget/ada.h"
#include "palimpsest/budget/pyramid.h"
#include "palimpsest/evict/evictor.h"

namespace palimpsest {

void Evictor::share_budgets(const Cache& cache, TableRange tables) {
  const HeadGeometry& geometry = cache.geometry();
  assert(cache.tables() == geometry.heads() && budgets_.size() == static_cast<std::size_t>(geometry.heads()));
  std::ranges::fill(next_victim_, kUnknown);
  if (method_.split == Split::kAda) {
    for (int layer = 0; layer < geometry.layers(); ++layer)
      if (tables.contains(geometry.first_head(layer))) share_by_scores(cache, layer, 0);
    return;
  }
  if (tables.first > 0) return;  // the first tables were given all layers' budgets
  const int tokens = tokens_of_fullest(cache);
  if (tokens <= method_.budget) {  // at most the slack is evicted
    std::ranges::fill(budgets_, method_.budget);
    return;
  }
  const auto of_layer =
      pyramid_budgets(method_.budget, method_.sinks() + method_.recent() + method_.pinned(), geometry.layers(), tokens);
  for (std::size_t t = 0; t < budgets_.size(); ++t)
    budgets_[t] = of_layer[static_cast<std::size_t>(geometry.layer_of(static_cast<int>(t)))];
}

bool Evictor::decides_now(const Cache& cache, int table, int coming, Phase phase) const {
  TableRange tables{table, table + 1};
  if (method_.splits_at_decisions()) {
    const HeadGeometry& geometry = cache.geometry();
    const int layer = geometry.layer_of(table);
    tables = {geometry.first_head(layer), geometry.first_head(layer + 1)};
  }
  for (int t = tables.first; t < tables.last; ++t)
    if (due(cache.table(t), t, coming, phase) > 0) return true;
  return false;
}

// Since the last decision all heads of a layer have got as many tokens: they are due at once, but for edits.
void Evictor::share_at_decision(const Cache& cache, int coming, Phase phase) {
  if (method_.schedule == Schedule::kPage || method_.evict_after) coming = 0;  // as in due()
  shared_.clear();
  std::vector<char> shared(budgets_.size(), 0);
  const HeadGeometry& geometry = cache.geometry();
  for (int layer = 0; layer < geometry.layers(); ++layer) {
    const int first = geometry.first_head(layer), last = geometry.first_head(layer + 1);
    if (first == last || !decides_now(cache, first, coming, phase)) continue;
    share_by_scores(cache, layer, coming);
    std::fill(shared.begin() + first, shared.begin() + last, 1);
  }
  shared_ = std::move(shared);
}

// The budgets of one layer's heads. All heads protect the same tokens. At a decision (splits_at_decisions) they are
// what the heads keep of their tokens, the headroom and the `coming` tokens: all budgets are met exactly.
void Evictor::share_by_scores(const Cache& cache, int layer, int coming) {
  const int heads = cache.geometry().layer(layer).kv_heads, first = cache.geometry().first_head(layer);
  if (heads == 0) return;
  std::vector<std::vector<float>> scores(static_cast<std::size_t>(heads));
  const bool decision = method_.splits_at_decisions();
  const int added = decision ? method_.headroom + coming : 0;
  int protected_tokens = 0, occupied = 0;  // of all heads
  // At the prompt's end all heads of a layer hold the same number of tokens.
  if (!decision && cache.table(first).occupied() <= method_.budget) {
    for (int h = 0; h < heads; ++h) budgets_[static_cast<std::size_t>(first + h)] = method_.budget;
    return;
  }
  for (int h = 0; h < heads; ++h) {
    const SlotTable& table = cache.table(first + h);
    const Guard guard = this->guard(table, first + h);
    const PositionView position = table.position();
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (guard.admits(position[slot])) scores[static_cast<std::size_t>(h)].push_back(table.score()[slot]);
    protected_tokens += table.occupied() - static_cast<int>(scores[static_cast<std::size_t>(h)].size());
    occupied += table.occupied();
  }
  const std::vector<int> counts =
      ada_counts(scores, std::max(0, std::min(occupied, heads * (method_.budget - added)) - protected_tokens),
                 method_.set_aside() + 1);
  for (int h = 0; h < heads; ++h) {
    const SlotTable& table = cache.table(first + h);
    const int guarded = table.occupied() - static_cast<int>(scores[static_cast<std::size_t>(h)].size());
    budgets_[static_cast<std::size_t>(first + h)] = guarded + counts[static_cast<std::size_t>(h)] + added;
  }
}

void Evictor::load_budgets(ByteReader& in, const HeadGeometry& geometry) {
  std::vector<int> budgets = in.array<int>();
  // Shared at decisions, they follow from tokens that are there: pins may not be read yet.
  const int min = method_.splits_at_decisions() ? 0 : method_.sinks() + method_.recent() + method_.pinned();
  in.require(budgets.size() == budgets_.size() && std::ranges::all_of(budgets, [&](int b) { return b > min; }) &&
                 std::accumulate(budgets.begin(), budgets.end(), 0LL) <=
                     (method_.budget + static_cast<long long>(geometry.layers())) * std::ssize(budgets),
             "budgets of heads that do not fit");
  budgets_ = std::move(budgets);
}

}  // namespace palimpsest
