// Slots sorted by their tokens' positions, for policies with Signals::ordered. Computed at each decision.
#pragma once

#include <vector>

#include "palimpsest/core/position_view.h"

namespace palimpsest {

// The slots whose position is not kNoPosition, oldest token first. Positions are distinct. Linear time: a radix sort of
// position - min, least significant byte first.
void order_by_age(const PositionView& position, std::vector<int>& order);

}  // namespace palimpsest
