// Carries the bytes of one head after its slot table was compacted.
#pragma once

#include <span>

#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// `moves` go downwards in ascending order (Move::to <= Move::from), as SlotTable::drop gives them. The pages of
// `target` are those of `source` (the survivors move down where they are) or none of them (they are copied).
void relocate_rows(const LayerView& shape, const BlockTable& source, const BlockTable& target,
                   std::span<const Move> moves);

}  // namespace palimpsest
