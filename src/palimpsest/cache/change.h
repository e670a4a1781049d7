// One change of a cache, for Cache::prepare. Its parts are applied in the order of the members.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// Positions [first, last).
struct PositionRange {
  Position first = 0, last = 0;
  bool empty() const { return last <= first; }
  bool contains(Position p) const { return p >= first && p < last; }
  bool operator==(const PositionRange&) const = default;
};

// Slot tables [first, last); `last` may exceed their number.
struct TableRange {
  int first = 0, last = INT32_MAX;
  bool contains(int table) const { return table >= first && table < last; }
  bool operator==(const TableRange&) const = default;
};

inline constexpr Position kEndOfText = INT64_MAX;  // as `last`: up to the newest token

struct CacheChange {
  // Number of the newest tokens of the last insert to remove: rejected drafts. Their slots are the next to be reused,
  // in the same order.
  int reject = 0;
  // Victims of each slot table (Victims::drop): oldest first, no slot twice. Empty: none.
  std::span<const std::vector<int>> drop = {};
  // Tokens outside their tables' windows, likewise: no later query sees them, and they do not count as evicted. A table
  // has victims or such tokens, not both.
  std::span<const std::vector<int>> out_of_window = {};
  // Drops all tokens at these positions. If the range reaches next(), next() falls to `first`.
  PositionRange drop_range = {};
  // Adds `shift_by` to these tokens' positions. The target positions must be empty; kEndOfText shifts next(), too. The
  // stored bytes do not change: see Cache::shift.
  PositionRange shift_range = {};
  Position shift_by = 0;
  // Number of tokens to insert at positions `at`, `at` + 1, ...; kNoPosition: at next(). Beyond next() this leaves a
  // gap; before it the positions must be empty.
  int insert = 0;
  Position at = kNoPosition;
  // The tables that change; the others keep their tokens and their own end of the text (a prompt that is read layer by
  // layer). All of them in edits: ranges and `at`.
  TableRange tables = {};

  std::span<const int> dropped_by(std::size_t table) const {  // victims, or tokens outside its window
    const bool victims = !drop.empty() && !drop[table].empty();
    const bool outside = !out_of_window.empty() && !out_of_window[table].empty();
    assert(!(victims && outside));
    if (victims) return drop[table];
    return outside ? std::span<const int>(out_of_window[table]) : std::span<const int>();
  }
};

}  // namespace palimpsest
