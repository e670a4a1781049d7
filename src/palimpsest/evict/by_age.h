// Slots in the order of their tokens' places: what a policy with Signals::ordered sees, at every decision anew.
#pragma once

#include <vector>

#include "palimpsest/core/position_view.h"

namespace palimpsest {

// The slots whose position is not kNoPosition, oldest token first. Positions differ. In time linear in their number:
// by the bytes of position - the least of all, the last byte first, as many as the greatest has.
void order_by_age(const PositionView& position, std::vector<int>& order);

}  // namespace palimpsest
