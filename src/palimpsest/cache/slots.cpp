#include "palimpsest/cache/slots.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace palimpsest {
SlotTable::SlotTable(int page_size, Mechanism mechanism, bool track_rank, int columns, int evicted_page,
                     int original_until)
    : page_size_(page_size),
      evicted_page_(evicted_page == 0 ? page_size : evicted_page),
      traits_(traits(mechanism)),
      track_rank_(track_rank),
      rank_is_position_(track_rank && original_until > 0),
      original_until_(original_until),
      column_(at(columns)) {
  assert(page_size > 0 && page_size % kTile == 0 && page_size % evicted_page_ == 0);
}

int SlotTable::occupied_in_evicted(int page) const {
  if (evicted_page_ == page_size_) return std::max(0, page_occupied_[at(page)]);
  const auto of_page = std::span(relative_).subspan(at(page * evicted_page_), at(evicted_page_));
  return evicted_page_ - static_cast<int>(std::ranges::count(of_page, kEmptySlot));
}

std::int32_t SlotTable::relative_position(Position position) const {
  return static_cast<std::int32_t>(std::max<Position>(position - base_, kSaturated));
}

SaturatedToken* SlotTable::saturated_at(int slot) {
  return &*std::ranges::lower_bound(saturated_, slot, {}, &SaturatedToken::slot);
}

// Sets the position of an empty slot.
void SlotTable::set_position(int slot, Position position) {
  changes_.add(slot);
  relative_[at(slot)] = relative_position(position);
  if (relative_[at(slot)] == kSaturated)
    saturated_.insert(std::ranges::lower_bound(saturated_, slot, {}, &SaturatedToken::slot), {slot, position});
}

void SlotTable::vacate(int slot) {
  changes_.add(slot);
  if (std::exchange(relative_[at(slot)], kEmptySlot) == kSaturated)
    saturated_.erase(saturated_.begin() + (saturated_at(slot) - saturated_.data()));
}

void SlotTable::write(int slot, Position position, int rank) {
  set_position(slot, position);
  score_[at(slot)] = 0;
  for (auto& column : column_) column[at(slot)] = 0;
  if (track_rank_) rank_[at(slot)] = rank;
  if (edited_) ordinal_[at(slot)] = read_++;
  int& in_page = page_occupied_[at(slot / page_size_)];
  assert(in_page != kUnmapped);
  if (in_page++ == 0) --empty_pages_;
  ++occupied_;
}

void SlotTable::erase(int slot) {
  assert(relative_[at(slot)] != kEmptySlot);
  vacate(slot);
  score_[at(slot)] = 0;
  for (auto& column : column_) column[at(slot)] = 0;
  if (track_rank_) rank_[at(slot)] = -1;
  if (edited_) ordinal_[at(slot)] = kNoPosition;
  if (--page_occupied_[at(slot / page_size_)] == 0) ++empty_pages_;
  --occupied_;
}

void SlotTable::drop(std::span<const int> victims, std::vector<Move>& moves) {
  moves.clear();
  if (victims.empty()) return;
  inserted_.clear();
  if (compacts()) {
    drop_and_compact(victims, moves);
    return;
  }
  if (traits_.whole_pages && !are_whole_pages(victims)) {
    if (track_rank_) close_ranks(victims);
    for (const int slot : victims) erase(slot);
    compact(moves);
    return;
  }
  drop_in_place(victims);
}

void SlotTable::drop_in_place(std::span<const int> victims) {
  if (track_rank_) close_ranks(victims);
  for (const int slot : victims) {
    erase(slot);
    if (traits_.whole_pages) {  // page after page; the oldest tokens of edited texts may alternate
      if (slot % evicted_page_ == 0)
        for (int i = 0; i < evicted_page_; ++i) free_.push_back(slot + i);
    } else if (traits_.reuses_slots) {
      free_.push_back(slot);
    }
  }
}

bool SlotTable::are_whole_pages(std::span<const int> victims) {
  counts_.assign(at(evicted_pages()), 0);  // [evicted page] -> victims
  for (const int slot : victims) ++counts_[at(slot / evicted_page_)];
  return std::ranges::all_of(counts_, [&](int count) { return count == 0 || count == evicted_page_; });
}

// Survivors keep the order of their slots.
void SlotTable::compact(std::vector<Move>& moves) {
  int to = 0;
  const auto skip_unmapped = [&] {
    while (to < slots() && !mapped(to / page_size_)) to += page_size_;
  };
  for (int from = 0; from < slots(); ++from) {
    if (relative_[at(from)] == kEmptySlot) continue;
    skip_unmapped();
    if (from != to) {
      move(from, to);
      moves.push_back({from, to});
      std::ranges::replace(inserted_, from, to);
    }
    ++to;
  }
  free_.clear();
  for (skip_unmapped(); to < slots(); skip_unmapped()) free_.push_back(to++);
}

// Every survivor's rank falls by the number of victims that were older: one pass.
void SlotTable::close_ranks(std::span<const int> victims) {
  if (rank_is_position_) return;
  const int slots = this->slots();
  if (victims.size() == 1) {
    const std::int32_t freed = rank_[at(victims[0])];
    std::int32_t* rank = rank_.data();
    for (int s = 0; s < slots; ++s) rank[s] -= rank[s] > freed ? 1 : 0;
    return;
  }
  counts_.assign(at(occupied_), 0);  // [rank] -> older victims, itself included
  for (const int slot : victims) counts_[at(rank_[at(slot)])] = 1;
  for (int r = 1; r < occupied_; ++r) counts_[at(r)] += counts_[at(r - 1)];
  for (int s = 0; s < slots; ++s)
    if (rank_[at(s)] >= 0) rank_[at(s)] -= counts_[at(rank_[at(s)])];
}

// Whether ranks are positions follows from next() alone, so that a text has the same ranks however it was read.
void SlotTable::choose_ranks() {
  const bool positions = within_original();
  if (std::exchange(rank_is_position_, positions) != positions) set_ranks();
}

// Computes the ranks anew.
void SlotTable::set_ranks() {
  if (rank_is_position_) {
    for (int s = 0; s < slots(); ++s) rank_[at(s)] = static_cast<int>(position(s));  // kNoPosition is -1
    return;
  }
  counts_.clear();  // the tokens' slots
  append_slots({0, kEndOfText}, counts_);
  for (std::size_t rank = 0; rank < counts_.size(); ++rank) rank_[at(counts_[rank])] = static_cast<int>(rank);
}

// Slots 0 .. occupied-1 hold the tokens in the order read, before and after; so a slot is its token's number among
// them, unless the text was edited.
void SlotTable::drop_and_compact(std::span<const int> victims, std::vector<Move>& moves) {
  const int before = occupied_;
  int first = before;
  if (track_rank_ && edited_) close_ranks(victims);
  for (const int slot : victims) {
    assert(slot < before && relative_[at(slot)] != kEmptySlot);
    first = std::min(first, slot);
    vacate(slot);
  }
  if (traits_.copies_rows)
    for (int slot = 0; slot < first; ++slot) moves.push_back({slot, slot});
  int to = first;
  for (int from = first; from < before; ++from) {
    if (relative_[at(from)] == kEmptySlot) continue;
    moves.push_back({from, to});
    changes_.add(to);
    relative_[at(to)] = relative_[at(from)];
    if (relative_[at(from)] == kSaturated) saturated_at(from)->slot = to;  // still sorted by slot
    score_[at(to)] = score_[at(from)];
    for (auto& column : column_) column[at(to)] = column[at(from)];
    if (edited_) ordinal_[at(to)] = ordinal_[at(from)];
    if (track_rank_ && (edited_ || rank_is_position_)) rank_[at(to)] = rank_[at(from)];
    ++to;
  }
  assert(before - to == static_cast<int>(victims.size()));
  for (int slot = before - 1; slot >= to; --slot) {
    relative_[at(slot)] = 0;  // any occupied value: erase() expects a token
    erase(slot);
  }
}

void SlotTable::map_page() {
  int page = pages();
  if (mapped_pages_ < page)
    page = static_cast<int>(std::ranges::find(page_occupied_, kUnmapped) - page_occupied_.begin());
  if (page == pages()) {
    resize(relative_.size() + at(page_size_));
    page_occupied_.push_back(kUnmapped);
  }
  page_occupied_[at(page)] = 0;
  ++mapped_pages_;
  ++empty_pages_;
  if (!compacts())
    for (int i = 0; i < page_size_; ++i) free_.push_back(page * page_size_ + i);
  mapped_.push_back(page);
}

void SlotTable::map_pages(int count) {
  for (; count > 0; --count) map_page();
}

void SlotTable::resize(std::size_t slots) {
  changes_.restart();
  relative_.resize(slots, kEmptySlot);
  score_.resize(slots, 0);
  for (auto& column : column_) column.resize(slots, 0);
  if (track_rank_) rank_.resize(slots, -1);
  if (edited_) ordinal_.resize(slots, kNoPosition);
}

std::span<const int> SlotTable::insert(int count) {
  assert(count >= 0);
  mapped_.clear();
  map_pages(pages_to_map(count));
  take_slots(count, next_);
  return mapped_;
}

// Ranks are by position, so an insert in the middle of the text raises the ranks of later tokens.
void SlotTable::take_slots(int count, Position at_position) {
  inserted_.clear();
  next_before_ = next_;
  if (at_position > next_) set_next(at_position);
  rebase_if_far();
  int rank = occupied_;
  if (at_position < next_) {
    assert(edited_ && !occupied({at_position, at_position + count}));
    rank = static_cast<int>(
        std::ranges::count_if(position(), [&](Position p) { return p != kNoPosition && p < at_position; }));
    if (track_rank_ && !rank_is_position_)
      for (int& r : rank_) r += r >= rank ? count : 0;
  }
  next_ = std::max(next_, at_position + count);
  choose_ranks();
  later_ = occupied_ - rank;
  if (rank_is_position_) rank = static_cast<int>(at_position);
  for (int i = 0; i < count; ++i) {
    const int slot = compacts() ? occupied_ : free_.pop_front();
    write(slot, at_position + i, rank + i);
    inserted_.push_back(slot);
  }
}

std::span<const int> SlotTable::release_empty_pages(int reserve) {
  unmapped_.clear();
  int spare = free_slots() - reserve;
  for (int page = pages() - 1; page >= 0 && empty_pages_ > 0; --page) {
    if (page_occupied_[at(page)] != 0) continue;
    const int free =
        traits_.reuses_slots ? page_size_ : free_.count_if([&](int slot) { return slot / page_size_ == page; });
    if (free > 0 && spare < free) continue;
    spare -= free;
    page_occupied_[at(page)] = kUnmapped;
    --mapped_pages_;
    --empty_pages_;
    unmapped_.push_back(page);
  }
  if (unmapped_.empty()) return {};
  if (!compacts()) free_.remove_if([this](int slot) { return !mapped(slot / page_size_); });
  while (!page_occupied_.empty() && page_occupied_.back() == kUnmapped) {
    page_occupied_.pop_back();
    resize(relative_.size() - at(page_size_));
  }
  return unmapped_;
}

void SlotTable::move(int from, int to) {
  const Position position = this->position(from);
  vacate(from);
  set_position(to, position);
  score_[at(to)] = std::exchange(score_[at(from)], 0.0F);
  for (auto& column : column_) column[at(to)] = std::exchange(column[at(from)], 0.0F);
  if (track_rank_) rank_[at(to)] = std::exchange(rank_[at(from)], -1);
  if (edited_) ordinal_[at(to)] = std::exchange(ordinal_[at(from)], kNoPosition);
  if (--page_occupied_[at(from / page_size_)] == 0) ++empty_pages_;
  if (page_occupied_[at(to / page_size_)]++ == 0) --empty_pages_;
}

void SlotTable::defragment(int reserve, std::vector<Move>& moves) {
  moves.clear();
  mapped_.clear();
  unmapped_.clear();
  if (traits_.waits_for_page()) return;
  if (mapped_pages_ * page_size_ - occupied_ - page_size_ < reserve) return;
  if (!traits_.reuses_slots) {
    compact(moves);
    return;
  }
  int first = pages();  // the first page to empty
  for (int spare = (free_slots() - reserve) / page_size_; spare > 0;)
    if (mapped(--first)) --spare;
  int to = 0;
  for (int from = first * page_size_; from < slots(); ++from) {
    if (relative_[at(from)] == kEmptySlot) continue;
    while (!mapped(to / page_size_) || relative_[at(to)] != kEmptySlot) ++to;
    assert(to < first * page_size_);
    move(from, to);
    moves.push_back({from, to});
    std::ranges::replace(inserted_, from, to);
  }
  if (moves.empty()) return;
  free_.remove_if([&](int slot) { return relative_[at(slot)] != kEmptySlot; });
  for (const Move& moved : moves) free_.push_back(moved.from);
}

void SlotTable::undo(int count) {
  assert(count >= 0 && at(count) <= inserted_.size());
  for (; count > 0; --count) {
    const int slot = inserted_.back();
    inserted_.pop_back();
    next_ = std::max(next_before_, position(slot));
    if (track_rank_ && rank_[at(slot)] != occupied_ - 1) close_ranks({&slot, 1});
    erase(slot);
    if (edited_) --read_;
    if (!compacts()) free_.push_front(slot);
  }
  choose_ranks();
}

bool SlotTable::as_inserted() const {
  if (edited_ || occupied_ != next_) return false;
  for (int slot = 0; cut_ && slot < occupied_; ++slot)
    if (position(slot) != slot) return false;
  return true;
}

void SlotTable::set_next(Position position) {
  assert(position >= next_);
  if (position > next_) inserted_.clear();
  if (edited_) read_ += position - next_;
  next_ = position;
  choose_ranks();
}

void SlotTable::clear() noexcept {
  const auto release = [](auto& column) { std::remove_reference_t<decltype(column)>().swap(column); };
  release(relative_), release(saturated_), release(rank_), release(score_), release(page_occupied_), release(ordinal_);
  for (auto& column : column_) release(column);
  release(inserted_), release(mapped_), release(unmapped_), release(counts_);
  free_.release();
  changes_.restart();
  occupied_ = mapped_pages_ = empty_pages_ = later_ = 0;
  next_ = base_ = next_before_ = read_ = 0;
  edited_ = cut_ = false;
  choose_ranks();
}

void SlotTable::shrink() {
  const auto release = [](auto& column) { std::remove_reference_t<decltype(column)>().swap(column); };
  relative_.shrink_to_fit(), rank_.shrink_to_fit(), score_.shrink_to_fit();
  for (auto& column : column_) column.shrink_to_fit();
  page_occupied_.shrink_to_fit(), ordinal_.shrink_to_fit(), inserted_.shrink_to_fit();
  release(mapped_), release(unmapped_), release(counts_);
  free_.shrink();
}

void SlotTable::rebase_if_far() {
  if (next_ - base_ >= kRebaseAt) rebase();
}

void SlotTable::rebase() {
  changes_.restart();
  const Position before = std::exchange(base_, next_);
  const auto known = static_cast<std::ptrdiff_t>(saturated_.size());
  for (int slot = 0; slot < slots(); ++slot) {
    std::int32_t& relative = relative_[at(slot)];
    if (relative == kEmptySlot || relative == kSaturated) continue;
    const Position position = before + relative;
    relative = this->relative_position(position);
    if (relative == kSaturated) saturated_.push_back({slot, position});
  }
  for (const SaturatedToken& token : std::span(saturated_).first(at(static_cast<int>(known))))
    relative_[at(token.slot)] = relative_position(token.position);
  std::erase_if(saturated_, [&](const SaturatedToken& token) { return relative_[at(token.slot)] != kSaturated; });
  std::ranges::sort(saturated_, {}, &SaturatedToken::slot);
}

SlotsView SlotTable::view() const {
  return {.relative = relative_.data(),
          .rank = track_rank_ ? rank_.data() : nullptr,
          .rank_is_position = rank_is_position_,
          .slots = slots(),
          .occupied = occupied_,
          .inserted = inserted_.data(),
          .inserted_count = static_cast<int>(inserted_.size()),
          .later = later_,
          .changes = &changes_};
}

std::size_t SlotTable::slot_bytes(bool track_rank, int columns) {
  return sizeof(std::int32_t) + (1 + at(columns)) * sizeof(float) + (track_rank ? sizeof(int) : 0);
}

std::size_t SlotTable::bytes() const {
  return relative_.size() * slot_bytes(track_rank_, columns()) + saturated_.size() * sizeof(SaturatedToken) +
         ordinal_.size() * sizeof(Position) + page_occupied_.size() * sizeof(int) + free_.bytes();
}

}  // namespace palimpsest
