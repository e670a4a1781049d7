// Carries the bytes of one head after its slot table was compacted.
#pragma once

#include <span>

#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// `moves` go downwards in ascending order (Move::to < Move::from), as SlotTable::drop gives them.
void carry(const LayerView& shape, std::byte* const* page, std::span<const Move> moves);

}  // namespace palimpsest
