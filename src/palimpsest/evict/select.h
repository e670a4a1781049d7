// Guarded selection: the slots of the lowest scores, some positions excepted. A total order: NaN first, then the lowest
// score, then the oldest token (core/score_order.h).
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/slots.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

// Positions that may leave: first <= position < last. Slots without a token never qualify (first >= 0).
struct Guard {
  Position first = 0, last = 0;
  bool admits(Position position) const { return position >= first && position < last; }
};

struct Columns {
  std::span<const float> score;
  PositionView position;  // of a slot table
};
Columns columns_of(const SlotTable& table);

// The admitted slot of the lowest score; there must be one. One vector pass over relative positions.
int select_lowest(const Columns& columns, Guard guard);
// Fills `chosen` with the `count` admitted slots of the lowest score, in order of age. There must be that many.
void select_lowest(const Columns& columns, Guard guard, int count, std::vector<int>& chosen);
// ... with all slots of the `count` full pages of the lowest mean score all of whose tokens are admitted; of equal ones
// the page whose first token is older. There must be that many.
void select_pages(const SlotTable& table, Guard guard, int count, std::vector<int>& chosen);

}  // namespace palimpsest
