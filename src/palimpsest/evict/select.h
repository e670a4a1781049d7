// Guarded selection: the slots with the lowest scores, except protected positions. A total order: NaN first, then the
// lowest score, then the oldest token (core/score_order.h).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "palimpsest/cache/slots.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// Positions that may be evicted: first <= position < last, and in none of `pins`, which are sorted and disjoint. Empty
// slots never qualify (first >= 0).
struct Guard {
  Position first = 0, last = 0;
  std::span<const PositionRange> pins = {};
  bool admits(Position position) const {
    if (position < first || position >= last) return false;
    return std::ranges::none_of(pins, [&](const PositionRange& pin) { return pin.contains(position); });
  }
};

struct Columns {
  std::span<const float> score;
  PositionView position;  // of a slot table
};
Columns columns_of(const SlotTable& table);

// The admitted slot with the lowest score; there must be one. A vector pass over relative positions between two pins.
int select_lowest(const Columns& columns, Guard guard);
// Fills `chosen` with the `count` admitted slots with the lowest scores, oldest first. There must be that many.
void select_lowest(const Columns& columns, Guard guard, int count, std::vector<int>& chosen);
// Fills `chosen` with all slots of `count` evicted pages (SlotTable::evicted_page): full pages with only admitted
// tokens, lowest score first; of equal scores the page whose first token is older. There must be that many. A page's
// score: the mean of its tokens' scores s; with `weight`, w of each slot: sqrt(sum of w s^2 / sum of w).
void select_pages(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen,
                  std::span<const float> weight = {});

}  // namespace palimpsest
