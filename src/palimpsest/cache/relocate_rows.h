// Moves the bytes of one head after its slot table was compacted.
#pragma once

#include <span>

#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

// `moves` are ascending and downwards (Move::to <= Move::from), as SlotTable::drop returns them. `target` has the same
// pages as `source` (survivors move down) or none of them (survivors are copied).
void relocate_rows(const LayerView& shape, const BlockTable& source, const BlockTable& target,
                   std::span<const Move> moves);

}  // namespace palimpsest
