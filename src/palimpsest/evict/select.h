// Guarded selection: the slots that score least, some positions excepted.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// Positions that may leave: first <= position < last. Slots without a token never qualify (first >= 0).
struct Guard {
  Position first = 0, last = 0;
  bool admits(Position position) const { return position >= first && position < last; }
};

// Fills `chosen` with the `count` admitted slots of the lowest score, of equal scores the oldest; in order of age.
// There must be that many. Scores are not NaN.
void select_lowest(std::span<const float> score, std::span<const Position> position, Guard guard, int count,
                   std::vector<int>& chosen);

}  // namespace palimpsest
