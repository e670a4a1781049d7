// What is outside a table's window: no query to come sees it, so it is dropped before any policy is asked.
//
//   position   0 . . . . . . . | 8 9 10 11 | 12        window 5: the next query, at 12, sees 8 to 12
//              outside           kept        next()
#pragma once

#include <vector>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

int count_unseen(const SlotTable& table, PositionRange outside);
// Appends the slots of the full pages all of whose tokens are outside, those of the oldest page first.
void append_unseen_pages(const SlotTable& table, PositionRange outside, std::vector<int>& slots);

}  // namespace palimpsest
