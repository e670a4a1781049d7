// Slots in the order of their tokens' places: what a policy with Signals::ordered sees, at every decision anew.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// The slots whose position is not kNoPosition, oldest token first. Positions differ. In time linear in their number:
// by the bytes of position - the least of all, the last byte first, as many as the greatest has.
void order_by_age(std::span<const Position> position, std::vector<int>& order);

}  // namespace palimpsest
