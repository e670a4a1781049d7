// Tokens outside a table's window: no later query sees them, so they are dropped before the policy scores.
//
//   position   0 . . . . . . . | 8 9 10 11 | 12        window 5: the next query, at 12, sees 8 to 12
//              outside           kept        next()
#pragma once

#include <vector>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

// Occupied slots outside the window.
int count_out_of_window(const SlotTable& table, PositionRange outside);
// Appends the slots of the full pages whose tokens are all outside, oldest page first.
void append_pages_out_of_window(const SlotTable& table, PositionRange outside, std::vector<int>& slots);

}  // namespace palimpsest
