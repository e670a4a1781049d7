// Saves and loads a slot table, including the order of its free slots: a restored sequence takes the same slots, so its
// sums are added in the same order.
#include <algorithm>
#include <climits>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

void SlotTable::save(ByteWriter& out) const {
  out.put(next_);
  out.put(base_);
  out.array(std::span<const Position>(std::vector<Position>(position().begin(), position().end())));
  out.array(std::span<const float>(score_));
  for (const auto& column : column_) out.array(std::span<const float>(column));
  out.array(std::span<const int>(rank_));
  out.array(std::span<const int>(page_occupied_));
  out.array(std::span<const int>(inserted_));
  std::vector<int> free;
  SlotQueue queue = free_;
  while (queue.size() > 0) free.push_back(queue.pop_front());
  out.array(std::span<const int>(free));
  if (!edited_) return;
  out.put(read_);
  out.array(std::span<const Position>(ordinal_));
}

void SlotTable::load(ByteReader& in, bool edited) {
  clear();
  next_ = in.get<Position>();
  base_ = in.get<Position>();
  const auto position = in.array<Position>();
  score_ = in.array<float>();
  for (auto& column : column_) column = in.array<float>();
  rank_ = in.array<int>();
  page_occupied_ = in.array<int>();
  inserted_ = in.array<int>();
  for (const int slot : in.array<int>()) free_.push_back(slot);
  edited_ = edited;
  cut_ = true;  // it may have been
  if (edited) {
    read_ = in.get<Position>();
    ordinal_ = in.array<Position>();
  }

  in.require(position.size() <= INT_MAX, "more slots than can be counted");
  in.require(base_ >= 0 && base_ <= next_, "positions out of order");  // checked before subtracting
  rank_is_position_ = within_original();
  changes_.restart();
  relative_.assign(position.size(), kEmptySlot);
  for (std::size_t slot = 0; slot < position.size(); ++slot) {
    const Position p = position[slot];
    if (p == kNoPosition) continue;
    in.require(p >= 0 && p < next_, "a token after the last");
    in.require(p - base_ < kEmptySlot, "positions too far from their base");
    set_position(static_cast<int>(slot), p);
    ++occupied_;
  }
  for (const int tokens : page_occupied_) {
    mapped_pages_ += tokens != kUnmapped ? 1 : 0;
    empty_pages_ += tokens == 0 ? 1 : 0;
  }
  if (const char* const found = fault()) in.damaged(found);
  if (edited) inserted_.clear();  // their first position is unknown
  next_before_ = next_ - static_cast<Position>(inserted_.size());
}

}  // namespace palimpsest
