// Edits of the text: what a range of positions that is dropped, shifted or inserted means for each table.
#include <algorithm>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/error.h"

namespace palimpsest {

// Checks an edit of the text against every table and lists the tokens that it drops.
void Cache::add_edit(const CacheChange& change) {
  const PositionRange shifted = change.shift_range;
  const Position by = change.shift_by;
  const bool shifts = !shifted.empty() && by != 0;
  if (shifts && (shifted.first < 0 || shifted.first + by < 0))
    fail("a shift of the positions from {} by {} would go below 0", shifted.first, by);
  if (change.at < kNoPosition ||
      (change.at != kNoPosition && change.at - tables_.front().base() <= SlotTable::kSaturated))
    fail("tokens cannot be inserted at position {}: it is negative or more than 2^30 tokens back", change.at);
  for (const MergedTokens& merged : merged_)
    if (!merged.tokens().empty() && (shifts || !change.drop_range.empty()))
      fail("mechanism merge: the text of merged tokens cannot be edited; use mechanism in-place");
  Position next = this->next();
  if (!change.drop_range.empty() && change.drop_range.last >= next) next = std::min(next, change.drop_range.first);
  // Positions that shifted tokens pass: must hold no other token, since a shift never reorders the text.
  PositionRange passed;
  if (shifts && by < 0) passed = {shifted.first + by, shifted.first};
  if (shifts && by > 0 && shifted.last != kEndOfText) {
    passed = {shifted.last, shifted.last + by};
    if (passed.last > next)
      fail("a shift of positions {} to {} by {} would pass the end", shifted.first, shifted.last, by);
  }
  const PositionRange inserted =
      change.at == kNoPosition ? PositionRange{} : PositionRange{change.at, change.at + change.insert};
  if (next < this->next()) pending_.end = next;
  const bool inside = change.at != kNoPosition && change.at < this->next();
  if (options_.state_floats > 0 && next > 0 && (shifts || inside || !change.drop_range.empty()))
    fail(
        "layers with a recurrent state have read the text up to position {} and cannot forget a part of it: clear the "
        "cache and read the text anew",
        this->next());
  check_windows(change, next);
  std::vector<std::vector<int>> all_victims(tables_.size());
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const SlotTable& table = tables_[t];
    const auto dropped = change.dropped_by(t);
    std::vector<int>& victims = all_victims[t];
    victims.assign(dropped.begin(), dropped.end());
    std::vector<bool> leaving(at(table.slots()));
    for (const int slot : victims) leaving[at(slot)] = true;
    const auto rejected = table.inserted().last(at(change.reject));
    std::vector<int> in_range;
    table.append_slots(change.drop_range, in_range);
    for (const int slot : in_range)
      if (!leaving[at(slot)] && std::ranges::find(rejected, slot) == rejected.end()) victims.push_back(slot);
    for (const int slot : victims) leaving[at(slot)] = true;
    for (const int slot : rejected) leaving[at(slot)] = true;
    for (int slot = 0; slot < table.slots(); ++slot) {
      const Position position = table.position(slot);
      if (position == kNoPosition || leaving[at(slot)]) continue;
      const bool moves = shifts && shifted.contains(position);
      if ((!moves && passed.contains(position)) || inserted.contains(moves ? position + by : position))
        fail("there is a token at position {}, where another would go: drop it first", position);
    }
  }
  pending_.victims.swap(all_victims);
}

// Throws Error if an edit would make tokens visible that a window has dropped.
void Cache::check_windows(const CacheChange& change, Position end) const {
  const PositionRange& shifted = change.shift_range;
  Position query = end;  // the next query's
  if (!shifted.empty() && shifted.last == kEndOfText) query += change.shift_by;
  if (change.at != kNoPosition) query = std::min(query, change.at);
  for (const std::int32_t window : windows_) {
    if (window == INT32_MAX) continue;
    Position dropped = next() - window + 1;  // positions before it were dropped
    if (dropped <= 0) continue;
    if (!shifted.empty() && shifted.contains(dropped - 1)) dropped += change.shift_by;
    if (query - window + 1 < dropped)
      fail(
          "layers with an attention window of {} have dropped the tokens before position {}, which position {} would "
          "see again: clear the cache and read the text anew",
          window, dropped, query);
  }
}

}  // namespace palimpsest
