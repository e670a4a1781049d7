// The victim of a decode step: a vector pass over two columns.
#pragma once

#include <cstdint>
#include <span>

namespace palimpsest {

// The slot of the lowest score (core/score_order.h: NaN is below all numbers) among those with after < relative <
// before; of equal scores the lowest `relative` (a relative position); -1: no such slot. Columns as in SlotTable: an
// empty slot has kEmptySlot, which is never below `before`.
int lowest_score(std::span<const float> score, const std::int32_t* relative, std::int32_t after, std::int32_t before);

}  // namespace palimpsest
