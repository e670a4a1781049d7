#include "palimpsest/evict/select.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/core/score_order.h"
#include "palimpsest/evict/lowest.h"

namespace palimpsest {
namespace {

// Positions of 64 bits, for streams whose `when` no longer tells old tokens apart.
int lowest_of_old(const Columns& columns, Guard guard) {
  const auto score = columns.score;
  const auto position = columns.position;
  int best = -1;
  float least = 0;
  Position age = 0;
  for (std::size_t s = 0; s < score.size(); ++s) {
    if (!guard.admits(position[s])) continue;
    if (best >= 0 && (score_below(least, score[s]) || (!score_below(score[s], least) && position[s] > age))) continue;
    best = static_cast<int>(s);
    least = score[s];
    age = position[s];
  }
  return best;
}

}  // namespace

Columns columns_of(const SlotTable& table) {
  return {table.score(), table.position(), table.base() == 0 ? table.view().when : nullptr};
}

int select_lowest(const Columns& columns, Guard guard) {
  assert(guard.first >= 0);
  const int slot = columns.when == nullptr
                       ? lowest_of_old(columns, guard)
                       : lowest_score(columns.score, columns.when, static_cast<std::int32_t>(guard.first - 1),
                                      static_cast<std::int32_t>(guard.last));
  assert(slot >= 0);
  return slot;
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
  const auto position = columns.position;
  chosen.reserve(score.size());
  for (std::size_t s = 0; s < score.size(); ++s)
    if (guard.admits(position[s])) chosen.push_back(static_cast<int>(s));
  assert(static_cast<int>(chosen.size()) >= count);
  const auto at = [](int slot) { return static_cast<std::size_t>(slot); };
  const auto older = [&](int a, int b) { return position[at(a)] < position[at(b)]; };
  const auto leaves_first = [&](int a, int b) {
    if (score_below(score[at(a)], score[at(b)])) return true;
    return !score_below(score[at(b)], score[at(a)]) && older(a, b);
  };
  if (static_cast<std::size_t>(count) < chosen.size())
    std::nth_element(chosen.begin(), chosen.begin() + count, chosen.end(), leaves_first);
  chosen.resize(at(count));
  std::sort(chosen.begin(), chosen.end(), older);
}

void select_pages(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen) {
  chosen.clear();
  const auto size = static_cast<std::size_t>(table.page_size());
  const auto chosen_already = [&](int page) {
    return std::ranges::find(chosen, page * table.page_size()) != chosen.end();
  };
  for (; count > 0; --count) {
    int best = -1;
    double least = 0;
    for (int page = 0; page < table.pages(); ++page) {
      if (table.live_in_page(page) != table.page_size() || chosen_already(page)) continue;
      const std::size_t first = static_cast<std::size_t>(page) * size;
      const auto positions = table.position().subspan(first, size);
      if (!std::ranges::all_of(positions, [&](Position p) { return guard.admits(p); })) continue;
      double sum = 0;
      for (const float score : table.score().subspan(first, size)) sum += score;
      const bool older = best >= 0 && positions[0] < table.position()[static_cast<std::size_t>(best) * size];
      if (best >= 0 && (score_below(least, sum) || (!score_below(sum, least) && !older))) continue;
      best = page;
      least = sum;
    }
    assert(best >= 0);
    for (int i = 0; i < table.page_size(); ++i) chosen.push_back(best * table.page_size() + i);
  }
}

}  // namespace palimpsest
