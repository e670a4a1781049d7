#include "palimpsest/evict/select.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/core/score_order.h"
#include "palimpsest/evict/lowest.h"

namespace palimpsest {
Columns columns_of(const SlotTable& table) {
  return {table.score(), table.position()};
}

int select_lowest(const Columns& columns, Guard guard) {
  assert(guard.first >= 0 && columns.position.relative() != nullptr);
  const auto score = columns.score;
  const PositionView& position = columns.position;
  const auto relative = [&](Position p, std::int32_t min) {
    return static_cast<std::int32_t>(std::clamp<Position>(p - position.base(), min, kEmptySlot));
  };
  // Saturated tokens share one relative position: they are compared by themselves below.
  const auto saturated = position.saturated();
  const std::int32_t min = saturated.empty() ? INT32_MIN : PositionView::kSaturated;
  int best = -1;
  const auto consider = [&](int slot) {
    if (slot < 0) return;
    const auto own = static_cast<std::size_t>(slot), other = static_cast<std::size_t>(best);
    if (best < 0 || score_below(score[own], score[other]) ||
        (!score_below(score[other], score[own]) && position[own] < position[other]))
      best = slot;
  };
  Position first = guard.first;
  const auto consider_range = [&](Position last) {
    if (first < last) consider(lowest_score(score, position.relative(), relative(first - 1, min), relative(last, min)));
  };
  for (const PositionRange& pin : guard.pins) {
    if (pin.first >= guard.last) break;
    consider_range(pin.first);
    first = std::max(first, pin.last);
  }
  consider_range(guard.last);
  for (const SaturatedToken& token : saturated)
    if (guard.admits(token.position)) consider(token.slot);
  assert(best >= 0);
  return best;
}

void select_lowest(const Columns& columns, Guard guard, int count, std::vector<int>& chosen) {
  assert(guard.first >= 0);
  chosen.clear();
  if (count == 0) return;
  if (count == 1) {
    chosen.push_back(select_lowest(columns, guard));
    return;
  }
  const auto score = columns.score;
  const PositionView& position = columns.position;
  chosen.reserve(score.size());
  for (std::size_t s = 0; s < score.size(); ++s)
    if (guard.admits(position[s])) chosen.push_back(static_cast<int>(s));
  assert(static_cast<int>(chosen.size()) >= count);
  const auto at = [](int slot) { return static_cast<std::size_t>(slot); };
  const auto older = [&](int a, int b) { return position[at(a)] < position[at(b)]; };
  const auto evicted_first = [&](int a, int b) {
    if (score_below(score[at(a)], score[at(b)])) return true;
    return !score_below(score[at(b)], score[at(a)]) && older(a, b);
  };
  if (static_cast<std::size_t>(count) < chosen.size())
    std::nth_element(chosen.begin(), chosen.begin() + count, chosen.end(), evicted_first);
  chosen.resize(at(count));
  std::sort(chosen.begin(), chosen.end(), older);
}

void select_pages(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen,
                  std::span<const float> weight) {
  chosen.clear();
  const auto size = static_cast<std::size_t>(table.evicted_page());
  const auto chosen_already = [&](int page) {
    return std::ranges::find(chosen, page * table.evicted_page()) != chosen.end();
  };
  const auto score_of = [&](std::size_t first) {
    const auto score = table.score().subspan(first, size);
    double sum = 0, weights = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double w = weight.empty() ? 1 : weight[first + i];
      sum += weight.empty() ? double{score[i]} : w * score[i] * score[i];
      weights += w;
    }
    return weight.empty() ? sum : sum / weights;
  };
  for (; count > 0; --count) {
    int best = -1;
    double min = 0;
    for (int page = 0; page < table.evicted_pages(); ++page) {
      if (table.occupied_in_evicted(page) != table.evicted_page() || chosen_already(page)) continue;
      const std::size_t first = static_cast<std::size_t>(page) * size;
      const PositionView position = table.position();
      std::size_t admitted = 0;
      while (admitted < size && guard.admits(position[first + admitted])) ++admitted;
      if (admitted < size) continue;
      const double score = score_of(first);
      const bool older = best >= 0 && position[first] < position[static_cast<std::size_t>(best) * size];
      if (best >= 0 && (score_below(min, score) || (!score_below(score, min) && !older))) continue;
      best = page;
      min = score;
    }
    assert(best >= 0);
    for (int i = 0; i < table.evicted_page(); ++i) chosen.push_back(best * table.evicted_page() + i);
  }
}

}  // namespace palimpsest
