// One change of a cache: what Cache::prepare takes. Its parts happen in the order in which they are written here.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// Positions from `first` up to, not including, `last`.
struct PositionRange {
  Position first = 0, last = 0;
  bool empty() const { return last <= first; }
  bool contains(Position p) const { return p >= first && p < last; }
};

inline constexpr Position kEndOfText = INT64_MAX;  // as `last`: up to the newest token

struct CacheChange {
  // So many of the newest tokens of the last insert are rejected: drafts that the model did not confirm. Their slots
  // are the next to be taken again, in the same order.
  int reject = 0;
  // Victims of each slot table (Plan::drop): oldest first, no slot twice. Empty: none.
  std::span<const std::vector<int>> drop = {};
  // No later query sees them: they are outside their tables' windows, and not counted as evicted.
  bool unseen = false;
  // All tokens at these positions. If the range reaches next(), next() falls to `first`.
  PositionRange drop_range = {};
  // The tokens at these positions get the position + `shift_by`. No token may be where they go; kEndOfText shifts
  // next(), too. The stored bytes stay as they are: see Cache::shift.
  PositionRange shift_range = {};
  Position shift_by = 0;
  // So many tokens are inserted at the positions `at` and following; kNoPosition: at next(). Beyond next() a gap is
  // left; before it no token may be there.
  int insert = 0;
  Position at = kNoPosition;
  // The next change may reject inserted tokens, and drops the victims that make room for them: until then they fill
  // spare slots (CacheOptions::spare_slots).
  bool tentative = false;
};

}  // namespace palimpsest
