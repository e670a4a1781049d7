// A slot table as bytes and back, to the last free slot: a restored sequence takes the same slots that it would have
// taken, so its sums are added in the same order.
#include <algorithm>
#include <cassert>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

void SlotTable::save(ByteWriter& out) const {
  out.put(next_);
  out.put(base_);
  out.array(std::span<const Position>(position_));
  out.array(std::span<const float>(score_));
  for (const auto& column : column_) out.array(std::span<const float>(column));
  out.array(std::span<const int>(rank_));
  out.array(std::span<const int>(page_live_));
  out.array(std::span<const int>(fresh_));
  std::vector<int> free;
  SlotQueue queue = free_;
  while (queue.size() > 0) free.push_back(queue.pop_front());
  out.array(std::span<const int>(free));
}

void SlotTable::load(ByteReader& in) {
  clear();
  next_ = in.get<Position>();
  base_ = in.get<Position>();
  position_ = in.array<Position>();
  score_ = in.array<float>();
  for (auto& column : column_) column = in.array<float>();
  rank_ = in.array<int>();
  page_live_ = in.array<int>();
  fresh_ = in.array<int>();
  const std::vector<int> free = in.array<int>();

  const std::size_t slots = position_.size();
  in.require(next_ >= 0 && base_ >= 0 && base_ <= next_, "positions out of order");
  in.require(slots % static_cast<std::size_t>(page_size_) == 0 && score_.size() == slots &&
                 std::ranges::all_of(column_, [&](const auto& column) { return column.size() == slots; }) &&
                 rank_.size() == (track_rank_ ? slots : 0) &&
                 page_live_.size() == slots / static_cast<std::size_t>(page_size_),
             "columns of different lengths");
  when_.assign(slots, kDead);
  std::vector<Position> seen;
  std::vector<int> ranks;
  for (std::size_t page = 0; page < page_live_.size(); ++page) {
    int live = 0;
    for (int i = 0; i < page_size_; ++i) {
      const std::size_t slot = page * static_cast<std::size_t>(page_size_) + static_cast<std::size_t>(i);
      if (track_rank_) in.require((rank_[slot] == -1) == (position_[slot] == kNoPosition), "a rank without a token");
      if (position_[slot] == kNoPosition) continue;
      in.require(position_[slot] >= 0 && position_[slot] < next_, "a token after the last");
      when_[slot] = when(position_[slot]);
      seen.push_back(position_[slot]);
      if (track_rank_) ranks.push_back(rank_[slot]);
      ++live;
    }
    const bool mapped = page_live_[page] != kUnmapped;
    in.require(mapped ? page_live_[page] == live : live == 0, "a page that counts its tokens wrongly");
    live_ += live;
    mapped_pages_ += mapped;
    empty_pages_ += mapped && live == 0;
  }
  std::ranges::sort(seen);
  in.require(std::ranges::adjacent_find(seen) == seen.end(), "a token in two slots");
  std::ranges::sort(ranks);
  for (std::size_t r = 0; r < ranks.size(); ++r) in.require(ranks[r] == static_cast<int>(r), "ranks with a gap");
  for (const int slot : fresh_)
    in.require(slot >= 0 && slot < this->slots() && position_[static_cast<std::size_t>(slot)] != kNoPosition,
               "a new token without a slot");

  const auto empty = static_cast<std::size_t>(mapped_pages_ * page_size_ - live_);
  in.require(compacts()                         ? free.empty()
             : mechanism_ == Mechanism::kAppend ? free.size() <= empty
                                                : free.size() == empty,
             "free slots that do not add up");
  std::vector<int> sorted = free;
  std::ranges::sort(sorted);
  in.require(std::ranges::adjacent_find(sorted) == sorted.end(), "a free slot twice");
  for (const int slot : free) {
    in.require(slot >= 0 && slot < this->slots() && mapped(slot / page_size_) &&
                   position_[static_cast<std::size_t>(slot)] == kNoPosition,
               "a free slot that is none");
    free_.push_back(slot);
  }
  if (compacts())
    for (int slot = 0; slot < live_; ++slot)
      in.require(position_[static_cast<std::size_t>(slot)] != kNoPosition, "a hole between tokens");
}

}  // namespace palimpsest
