// Carries the bytes of one head after its slot table was compacted.
#pragma once

#include <span>

#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// `moves` go downwards in ascending order (Move::to <= Move::from), as SlotTable::drop gives them. The pages of
// `target` are those of `source` (the survivors move down where they are) or none of them (they are copied).
void carry(const LayerView& shape, std::byte* const* source, std::byte* const* target, std::span<const Move> moves);

}  // namespace palimpsest
