// The one token that leaves in a decode step: a vector pass over two columns.
#pragma once

#include <cstdint>
#include <span>

namespace palimpsest {

// The slot of the lowest score (core/score_order.h: NaN is below all numbers) among those with after < when < before,
// of equal scores the one with the lowest `when`; -1: no slot has such a `when`. Columns as SlotTable has them: a slot
// without a token is kEmptySlot, which is never below `before`.
int lowest_score(std::span<const float> score, const std::int32_t* when, std::int32_t after, std::int32_t before);

}  // namespace palimpsest
