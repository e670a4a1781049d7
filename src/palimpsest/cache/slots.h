// Bookkeeping of slots: who lives where. No bytes, no tensors; tested against a naive model that keeps a list of
// tokens.
//
//   slot      0    1    2    3    4    5    6    7        page_size = 4
//   position  0    1    9   10    4    5    -    8        slot 6 is free; tokens have no order, `position` is all
//                                                         there is
//
// Four mechanisms reach the same set of tokens:
//   in-place  drop() leaves holes; insert() fills them in the order in which they were made
//   shift     drop() moves the survivors down, oldest first, and reports the moves; insert() appends
//   gather    as shift, but every survivor is reported: the cache copies them all to fresh pages (what slicing a tensor
//             by an index list does; the baseline that the papers compare with)
//   append    drop() leaves holes that nobody fills; insert() goes on in the newest page; a page is given up when its
//             last token has left (how paged caches evict token by token: the baselines of PagedEviction, seed 002)
// The fifth drops whole pages, so what is kept depends on the page size:
//   block     drop() of all tokens of full pages frees these pages, which the next tokens fill; any other drop() (after
//             a prompt) closes up: survivors move down, so that every page but the last is full
//
// The sixth is in-place with a twist that the cache knows of:
//   merge     a victim may go over into another slot's token before it is dropped (cache/merged.h)
//
// A page is mapped (its slots hold tokens or are free) or unmapped (it has no memory and its slots are not handed out).
// insert() maps pages as it needs them, unmapped ones first; release_empty_pages() unmaps pages that hold no token.
// Unmapped pages at the end are cut off, so slots() falls.
//
// Free slots wait in one line. In place, where nothing is spare, the k-th new token takes the k-th victim's slot. With
// `spare_slots` so many slots are always free, so that tentative tokens need no victim: they take the first in line,
// victims join the end once the tokens are accepted, rejected tokens return to the front. So a token's slot does not
// depend on how many drafts there were:
//
//   line               a b c        spare_slots = 3
//   3 tentative        -            they are in a, b, c
//   1 rejected, 2 dropped  c v w    a, b stay; the victims' slots v, w wait behind c
//
// A token has a position in the text and an ordinal: how many tokens were read before it. They are the same number
// until the text is edited (a range of positions dropped at the end or shifted, tokens inserted in the middle).
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

enum class Mechanism { kInPlace, kShift, kGather, kBlock, kAppend, kMerge };

struct Move {  // the bytes of `from` go to `to`; carried out in the order given
  int from, to;
};

// First in, first out, in one ring: no allocation while its size stays below what it has been.
class SlotQueue {
 public:
  int size() const { return size_; }
  void push_back(int slot);
  void push_front(int slot);
  int pop_front();
  int operator[](int i) const { return ring_[static_cast<std::size_t>(wrap(head_ + i))]; }
  void clear() { head_ = size_ = 0; }
  void reserve(std::size_t entries);  // so many need no more memory
  void release();                     // the memory; empty
  template <typename Predicate>
  void remove_if(Predicate gone) {  // the others keep their order
    int kept = 0;
    for (int i = 0; i < size_; ++i) {
      const int slot = (*this)[i];
      if (!gone(slot)) ring_[static_cast<std::size_t>(wrap(head_ + kept++))] = slot;
    }
    size_ = kept;
  }
  template <typename Predicate>
  int count_if(Predicate wanted) const {
    int count = 0;
    for (int i = 0; i < size_; ++i) count += wanted((*this)[i]) ? 1 : 0;
    return count;
  }
  std::size_t bytes() const { return ring_.size() * sizeof(int); }
  static std::size_t places_for(std::size_t entries);  // the ring's, when it held so many at the most

 private:
  int wrap(int i) const { return i < static_cast<int>(ring_.size()) ? i : i - static_cast<int>(ring_.size()); }
  void grow();
  std::vector<int> ring_;
  int head_ = 0, size_ = 0;
};

// One table's part of a CacheChange. `drop` has the tokens of its range, too.
struct SlotChange {
  int reject = 0;
  std::span<const int> drop = {};
  Position end = kNoPosition;  // next() falls to it, if it is above
  PositionRange shift_range = {};
  Position shift_by = 0;
  int insert = 0;
  Position at = kNoPosition;
  bool tentative = false;
};

class SlotTable {
 public:
  // `columns`: floats that travel with a token besides its score; 0 at birth.
  SlotTable(int page_size, Mechanism mechanism, bool track_rank, int columns = 0, int spare_slots = 0);

  int occupied() const { return occupied_; }
  int slots() const { return static_cast<int>(when_.size()); }  // multiple of page_size, unmapped ones included
  int free_slots() const {                                      // in mapped pages, those that insert() may take
    return mechanism_ == Mechanism::kAppend ? free_.size() : mapped_pages_ * page_size_ - occupied_;
  }
  int page_size() const { return page_size_; }
  int pages() const { return slots() / page_size_; }
  int mapped_pages() const { return mapped_pages_; }
  bool mapped(int page) const { return page_occupied_[static_cast<std::size_t>(page)] != kUnmapped; }
  int occupied_in_page(int page) const { return mapped(page) ? page_occupied_[static_cast<std::size_t>(page)] : 0; }
  // kNoPosition: no token.
  Position position(int slot) const { return position()[static_cast<std::size_t>(slot)]; }
  PositionView position() const { return {when_, base_, saturated_}; }
  std::span<float> score() { return score_; }  // travels with its token; 0 at birth
  std::span<const float> score() const { return score_; }
  int columns() const { return static_cast<int>(column_.size()); }
  std::span<float> column(int c) { return column_[static_cast<std::size_t>(c)]; }
  std::span<const float> column(int c) const { return column_[static_cast<std::size_t>(c)]; }
  std::span<const int> rank() const { return rank_; }          // empty unless tracked; -1: no token
  std::span<const int> inserted() const { return inserted_; }  // slots of the last insert, until the next drop
  Position next() const { return next_; }                      // position after the last token of the text
  // Tokens read, the ordinal of the next one; of a token: how many were read before it.
  Position read() const { return edited() ? read_ : next_; }
  Position ordinal(int slot) const { return edited() ? ordinal_[static_cast<std::size_t>(slot)] : position(slot); }
  bool edited() const { return edited_; }  // an ordinal may differ from its position
  int tentative() const { return tentative_; }
  int spare_slots() const { return spare_slots_; }

  // Memory for apply(change), which then allocates nothing and cannot fail, if `change` has neither shift nor `end` nor
  // a position of its own. Throws std::bad_alloc, unchanged but for view(). `moves`: what apply() will be given.
  // Returns the pages to map, and whether an earlier view() holds no longer.
  struct Reserved {
    int pages;
    bool views_moved;
  };
  Reserved reserve(const SlotChange& change, std::vector<Move>& moves);
  // Rejects, drops, shifts, inserts; then unmaps pages without a token if any were dropped: as long as as many slots
  // stay free as were dropped beyond what was inserted. `moves` as of drop().
  void apply(const SlotChange& change, std::vector<Move>& moves);
  int pages_to_map(const SlotChange& change) const;  // how many apply(change) would
  // The slot that the i-th inserted token of `change` takes, with mechanisms that move no token; -1: in a page that has
  // still to be mapped.
  int next_slot(const SlotChange& change, int i) const;
  std::span<const int> mapped_pages_of_change() const { return mapped_; }  // by the last apply() or insert()
  std::span<const int> unmapped_pages_of_change() const {
    return unmapped_;
  }  // by the last apply() or release_empty_pages()
  void append_slots(PositionRange range, std::vector<int>& slots) const;  // of the tokens there, oldest first
  bool occupied(PositionRange range) const;                               // whether a token is there

  // Gives up `victims` (live slots, no duplicates). `moves` is empty under kInPlace, kAppend, and kBlock if they are
  // all tokens of full pages.
  void drop(std::span<const int> victims, std::vector<Move>& moves);
  // Becomes a table of the same mechanism with the same tokens in the same slots; scores and columns are 0, or come
  // along if there are as many.
  void become(const SlotTable& like, bool scores);
  // Takes slots for tokens at positions next() .. next() + count - 1. Returns the pages that it had to map.
  std::span<const int> insert(int count);
  int pages_to_map(int count) const { return pages_to_map({.insert = count}); }  // how many insert(count) would
  // Unmaps pages without a token as long as `reserve` slots stay free; returns them.
  std::span<const int> release_empty_pages(int reserve);
  // In place and append, after tokens here and there have left: empties so many of the last pages as
  // release_empty_pages(reserve) could unmap, into free slots before them (append: all survivors move down). `moves` as
  // of drop().
  void defragment(int reserve, std::vector<Move>& moves);
  // Forgets the newest `count` tokens (of the last insert): a rejected draft, a cancelled step. Their slots are the
  // next to be taken.
  void undo(int count);
  // The next token's position, for a sequence that resumes after a gap (a restored one). Not below next().
  void resume_at(Position position);
  void clear() noexcept;  // no token, no page, position 0

  void save(ByteWriter& out) const;
  // Of a table that was edited() or not. Throws Error for bytes that no table of this kind wrote; it is not usable
  // then.
  void load(ByteReader& in, bool edited = false);
  // Which invariant does not hold (all are listed in slots_check.cpp); nullptr: all hold. Sorts the tokens.
  const char* fault() const;

  SlotsView view() const;                  // stays valid until the next change
  Position base() const { return base_; }  // SlotsView::when = position - base, see when()
  // `when` of a position. Tokens 2^30 behind the base saturate at kSaturated, where their order is lost: whether a
  // token is among the first n is asked as when(token) <= when(n - 1), never as < when(n).
  std::int32_t when(Position position) const;
  static constexpr std::int32_t kSaturated = PositionView::kSaturated;

  static std::size_t slot_bytes(bool track_rank, int columns);  // of one slot's entries
  std::size_t bytes() const;  // memory of the columns: whens, ranks, scores, columns, page counts, free list

 private:
  static constexpr int kUnmapped = -1;
  static constexpr Position kRebaseAt = Position{1} << 30;  // `when` stays in [-2^30, 2^30 + one insert)

  const char* counts_fault() const;
  const char* positions_fault() const;
  const char* tokens_fault() const;
  const char* free_fault() const;
  // Dropped beyond what is inserted: slots that stay free for as many tokens to come.
  int slots_kept(const SlotChange& change) const;
  void write(int slot, Position position, int rank);
  void erase(int slot);
  void move(int from, int to);
  void map_pages(int count);
  void map_page();
  void place(int slot, Position position);
  SaturatedToken* saturated_at(int slot);
  void vacate(int slot);
  void rebase();
  void rebase_if_far();
  void take_slots(int count, Position at);
  void shift(PositionRange range, Position by);
  void begin_edit();
  void resize(std::size_t slots);
  void drop_in_place(std::span<const int> victims);
  bool whole_pages(std::span<const int> victims);
  void compact(std::vector<Move>& moves);
  bool compacts() const { return mechanism_ == Mechanism::kShift || mechanism_ == Mechanism::kGather; }
  void drop_and_compact(std::span<const int> victims, std::vector<Move>& moves);
  void close_ranks(std::span<const int> victims);

  int page_size_;
  Mechanism mechanism_;
  bool track_rank_;
  int spare_slots_;
  int occupied_ = 0, mapped_pages_ = 0, empty_pages_ = 0;  // empty: mapped, no token
  int tentative_ = 0;                                      // of the last insert's tokens
  bool edited_ = false;
  Position next_ = 0, base_ = 0;
  Position next_before_ = 0;  // the last insert
  Position read_ = 0;         // if edited
  std::vector<std::int32_t> when_, rank_;
  std::vector<SaturatedToken> saturated_;  // by slot: those whose `when` is kSaturated
  std::vector<float> score_;
  std::vector<std::vector<float>> column_;
  std::vector<int> page_occupied_;  // kUnmapped, or tokens in the page
  std::vector<Position> ordinal_;   // if edited; kNoPosition: no token
  std::vector<int> inserted_, mapped_, unmapped_, shift_by_;
  SlotQueue free_;  // not of shift and gather: there the free slots are those from live() on
};

}  // namespace palimpsest
