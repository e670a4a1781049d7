// A slot table's part of a change: reserve() acquires all memory, apply() cannot fail. Also edits of the text.
#include <algorithm>
#include <cassert>

#include "palimpsest/cache/slots.h"
#include "palimpsest/core/growth.h"

namespace palimpsest {
int SlotTable::pages_to_map(const SlotChange& change) const {
  if (change.insert == 0) return 0;
  const int dropped = traits_.reuses_slots ? static_cast<int>(change.drop.size()) : 0;
  const int missing = change.insert - (free_slots() + change.reject + dropped);
  return std::max(0, (missing + page_size_ - 1) / page_size_);
}

int SlotTable::next_slot(const SlotChange& change, int i) const {
  assert(!traits_.moves_rows);
  if (i < change.reject) return inserted_[inserted_.size() - at(change.reject - i)];
  i -= change.reject;
  if (i < free_.size()) return free_[i];
  i -= free_.size();
  return traits_.reuses_slots && at(i) < change.drop.size() ? change.drop[at(i)] : -1;
}

SlotTable::Reserved SlotTable::reserve(const SlotChange& change, std::vector<Move>& moves) {
  assert(change.shift_range.empty() && change.end == kNoPosition && change.at == kNoPosition);
  const auto *const relative = relative_.data(), *const rank = rank_.data(), *const inserted = inserted_.data();
  const auto last_column = [&] { return column_.empty() ? nullptr : column_.back().data(); };
  const float* const bias = last_column();  // Cache::biases
  const int pages = pages_to_map(change);
  if (pages > 0) {
    const std::size_t slots = relative_.size() + at(pages * page_size_);
    reserve_for(relative_, slots);
    reserve_for(score_, slots);
    for (auto& column : column_) reserve_for(column, slots);
    if (track_rank_) reserve_for(rank_, slots);
    if (edited_) reserve_for(ordinal_, slots);
    reserve_for(page_occupied_, page_occupied_.size() + at(pages));
    mapped_.reserve(at(pages));
  }
  if (at(change.insert) > inserted_.capacity()) inserted_.reserve(at(change.insert));
  if (next_ - base_ >= kRebaseAt) saturated_.reserve(at(occupied_));
  // Ranks are computed anew where the text grows beyond original_until, also if rejected tokens were beyond it before.
  if (track_rank_ && next_ - change.reject <= original_until_ && next_ + change.insert > original_until_)
    reserve_for(counts_, at(occupied_));
  const std::size_t victims = change.drop.size();
  if (victims > 0) {
    if (unmapped_.capacity() < page_occupied_.size() + at(pages))
      reserve_for(unmapped_, page_occupied_.size() + at(pages));
    const std::size_t counted = std::max(at(occupied_), at(evicted_pages() + pages * (page_size_ / evicted_page_)));
    if ((track_rank_ && victims > 1) || traits_.whole_pages) reserve_for(counts_, counted);
    if (traits_.waits_for_page()) reserve_for(moves, at(occupied_));
  }
  if (!compacts())
    free_.reserve(at(free_.size() + change.reject + pages * page_size_) + (traits_.reuses_slots ? victims : 0));
  return {pages, relative != relative_.data() || rank != rank_.data() || inserted != inserted_.data() ||
                     bias != last_column()};
}

void SlotTable::apply(const SlotChange& change, std::vector<Move>& moves) {
  moves.clear();
  mapped_.clear();
  unmapped_.clear();
  const int pages = pages_to_map(change);
  undo(change.reject);
  drop(change.drop, moves);
  if (change.end != kNoPosition && change.end < next_) {
    if (next_ >= kRebaseAt) begin_edit();  // positions are relative to another base then
    inserted_.clear();
    cut_ = true;
    next_ = next_before_ = change.end;
    if (base_ > next_) rebase();
    choose_ranks();
  }
  if (!change.shift_range.empty()) shift(change.shift_range, change.shift_by);
  map_pages(pages);
  const Position position = change.at == kNoPosition ? next_ : change.at;
  if (change.insert > 0) {
    if (position < next_) begin_edit();
    take_slots(change.insert, position);
  } else if (position > next_) {
    set_next(position);
  }
  if (!change.drop.empty()) release_empty_pages(std::max(0, static_cast<int>(change.drop.size()) - change.insert));
}

void SlotTable::copy_from(const SlotTable& like, bool scores) {
  assert(like.traits_ == traits_ && like.page_size_ == page_size_ && !like.edited_ &&
         (!scores || like.columns() == columns()));
  assert(!traits_.whole_pages || like.evicted_page_ == evicted_page_);
  const bool track_rank = track_rank_;
  const int evicted_page = evicted_page_, original_until = original_until_;
  const std::size_t columns = column_.size();
  *this = like;
  track_rank_ = track_rank;
  evicted_page_ = evicted_page;
  original_until_ = original_until;
  if (!scores) {
    score_.assign(at(slots()), 0);
    column_.assign(columns, std::vector<float>(at(slots()), 0));
  }
  rank_.assign(track_rank ? at(slots()) : 0, -1);
  rank_is_position_ = within_original();
  if (track_rank) set_ranks();
}

void SlotTable::begin_edit() {
  inserted_.clear();
  if (edited_) return;
  ordinal_.assign(position().begin(), position().end());  // equal up to now
  read_ = next_;
  edited_ = true;
}

void SlotTable::shift(PositionRange range, Position by) {
  begin_edit();
  for (int slot = 0; slot < slots(); ++slot) {
    const Position position = this->position(slot);
    if (position == kNoPosition || !range.contains(position)) continue;
    assert(position + by >= 0);
    vacate(slot);
    set_position(slot, position + by);
  }
  if (range.contains(next_)) next_ += by;
  next_before_ = next_;
  choose_ranks();
  if (rank_is_position_) set_ranks();
  if (base_ > next_ || next_ - base_ >= kRebaseAt) rebase();
}

void SlotTable::append_slots(PositionRange range, std::vector<int>& slots) const {
  const auto first = static_cast<std::ptrdiff_t>(slots.size());
  for (int slot = 0; slot < this->slots(); ++slot) {
    const Position position = this->position(slot);
    if (position != kNoPosition && range.contains(position)) slots.push_back(slot);
  }
  std::ranges::sort(slots.begin() + first, slots.end(), {}, [&](int slot) { return position(slot); });
}

bool SlotTable::occupied(PositionRange range) const {
  return std::ranges::any_of(position(), [&](Position p) { return p != kNoPosition && range.contains(p); });
}

}  // namespace palimpsest
