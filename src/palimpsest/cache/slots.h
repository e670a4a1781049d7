// Bookkeeping of slots: who lives where. No bytes, no tensors; tested against a naive model that keeps a list of
// tokens.
//
//   slot      0    1    2    3    4    5    6    7        page_size = 4
//   position  0    1    9   10    4    5    -    8        slot 6 is free; tokens have no order, `position` is all there
//   is
//
// Two mechanisms reach the same set of tokens:
//   in-place  drop() leaves holes; insert() fills them in the order in which they were made
//   shift     drop() moves the survivors down, oldest first, and reports the moves; insert() appends
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "palimpsest/cache/view.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

enum class Mechanism { kInPlace, kShift };

struct Move {  // the bytes of `from` go to `to`; carried out in the order given
  int from, to;
};

class SlotTable {
 public:
  SlotTable(int page_size, Mechanism mechanism, bool track_rank);

  int live() const { return live_; }
  int slots() const { return static_cast<int>(position_.size()); }  // multiple of page_size
  int pages() const { return slots() / page_size_; }
  int live_in_page(int page) const { return page_live_[static_cast<std::size_t>(page)]; }
  std::span<const Position> position() const { return position_; }  // kNoPosition: free
  std::span<float> score() { return score_; }                       // travels with its token; 0 at birth
  std::span<const int> fresh() const { return fresh_; }             // slots of the last insert
  Position next() const { return next_; }                           // position after the newest token ever inserted

  // Gives up `victims` (live slots, no duplicates). `moves` is filled under kShift, empty under kInPlace.
  void drop(std::span<const int> victims, std::vector<Move>& moves);
  // Takes slots for tokens at positions next() .. next() + count - 1; grows by whole pages when none is free.
  void insert(int count);
  // Forgets the newest `count` tokens (of the last insert): a rejected draft, a cancelled step.
  void undo(int count);

  SlotsView view() const;                  // stays valid until the next change
  Position base() const { return base_; }  // SlotsView::when = position - base
  std::size_t bytes() const;               // memory of the tables themselves

 private:
  void write(int slot, Position position);
  void erase(int slot);
  void rebase();

  int page_size_;
  Mechanism mechanism_;
  bool track_rank_;
  int live_ = 0;
  Position next_ = 0, base_ = 0;
  std::vector<Position> position_;
  std::vector<std::int32_t> when_, rank_;
  std::vector<float> score_;
  std::vector<int> page_live_, fresh_;
  std::deque<int> free_;
};

}  // namespace palimpsest
