// Bookkeeping of slots: which slot holds the token of which position. No bytes, no tensors; tested against a naive
// model that keeps a list of tokens.
//
//   slot      0    1    2    3    4    5    6    7        page_size = 4
//   position  0    1    9   10    4    5    -    8        slot 6 is free; slots have no order
//
// Four mechanisms keep the same set of tokens:
//   in-place  drop() leaves holes; insert() fills them in the order in which they were made
//   shift     drop() moves the survivors down, oldest first, and reports the moves; insert() appends
//   gather    as shift, but every survivor is reported: the cache copies them all to new pages (as slicing a tensor by
//             an index list does; the papers' baseline)
//   append    drop() leaves holes that are not reused; insert() continues in the newest page; a page is released when
//             it is empty (token eviction in a paged cache: the baselines of PagedEviction)
// The fifth drops whole pages, so what is kept depends on the page size:
//   block     drop() of all tokens of full pages frees these pages, which the next tokens fill; any other drop() (after
//             a prompt) compacts: survivors move down, so that every page but the last is full
// The sixth is in-place with merging:
//   merge     a victim may be merged into another slot's token before it is dropped (cache/merged.h)
// The seventh too, with a bias per slot in the last column (Cache::biases):
//   match     values and biases of the kept tokens are fitted before the victims are dropped (engine/mechanism/match.h)
//
// A page is mapped (its slots hold tokens or are free) or unmapped (no memory, its slots are not used). insert() maps
// pages as needed, unmapped ones first; release_empty_pages() unmaps pages without tokens. Unmapped pages at the end
// are removed, so slots() falls.
//
// Free slots are in one FIFO queue. In place the k-th new token of a change takes the k-th victim's slot if no other
// slot was free.
//
// A token's rank is what its key is rotated by and its distance counted from: its number among the tokens kept, oldest
// 0. While the text has at most `original_until` tokens, it is its position in the text instead: each token is where it
// was read until that leaves the positions that the model was trained on.
//
// A token has a position in the text and an ordinal: the number of tokens read before it. They are equal until the text
// is edited (a range of positions shifted, tokens inserted in the middle). A text whose end was dropped is as if its
// tokens had never been read.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/cache/change_log.h"
#include "palimpsest/cache/mechanism.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

struct Move {  // moves the bytes of `from` to `to`; executed in the order given
  int from, to;
};

// A FIFO of slots in a ring buffer. Allocates only when it exceeds its capacity.
class SlotQueue {
 public:
  int size() const { return size_; }
  void push_back(int slot);
  void push_front(int slot);
  int pop_front();
  int operator[](int i) const { return ring_[static_cast<std::size_t>(wrap(head_ + i))]; }
  void clear() { head_ = size_ = 0; }
  void reserve(std::size_t entries);  // memory for so many
  void release();                     // frees the memory; empty
  void shrink();                      // frees the memory that its entries do not need
  template <typename Predicate>
  void remove_if(Predicate removed) {  // the others keep their order
    int kept = 0;
    for (int i = 0; i < size_; ++i) {
      const int slot = (*this)[i];
      if (!removed(slot)) ring_[static_cast<std::size_t>(wrap(head_ + kept++))] = slot;
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
  static std::size_t ring_size(std::size_t entries);  // the ring's size after it held max `entries`

 private:
  int wrap(int i) const { return i < static_cast<int>(ring_.size()) ? i : i - static_cast<int>(ring_.size()); }
  void grow();
  void resize(std::size_t ring);
  std::vector<int> ring_;
  int head_ = 0, size_ = 0;
};

// One table's part of a CacheChange. `drop` includes the tokens of CacheChange::drop_range.
struct SlotChange {
  int reject = 0;
  std::span<const int> drop = {};
  Position end = kNoPosition;  // next() becomes min(next(), end)
  PositionRange shift_range = {};
  Position shift_by = 0;
  int insert = 0;
  Position at = kNoPosition;
};

class SlotTable {
 public:
  // `columns`: floats per token besides its score; 0 when inserted. They move with their token.
  // `evicted_page`: tokens of a page that mechanism block drops at once, a divisor of page_size; 0: page_size.
  // `original_until`: ranks are positions until next() exceeds it.
  SlotTable(int page_size, Mechanism mechanism, bool track_rank, int columns = 0, int evicted_page = 0,
            int original_until = 0);

  int occupied() const { return occupied_; }
  int slots() const { return static_cast<int>(relative_.size()); }  // multiple of page_size, unmapped ones included
  int free_slots() const {                                          // in mapped pages, available to insert()
    return traits_.reuses_slots ? mapped_pages_ * page_size_ - occupied_ : free_.size();
  }
  int page_size() const { return page_size_; }
  int evicted_page() const { return evicted_page_; }
  int evicted_pages() const { return slots() / evicted_page_; }
  int occupied_in_evicted(int page) const;  // tokens of an evicted page
  int pages() const { return slots() / page_size_; }
  int mapped_pages() const { return mapped_pages_; }
  bool mapped(int page) const { return page_occupied_[static_cast<std::size_t>(page)] != kUnmapped; }
  int occupied_in_page(int page) const { return mapped(page) ? page_occupied_[static_cast<std::size_t>(page)] : 0; }
  // kNoPosition: no token.
  Position position(int slot) const { return position()[static_cast<std::size_t>(slot)]; }
  PositionView position() const { return {relative_, base_, saturated_}; }
  std::span<float> score() { return score_; }  // moves with its token; 0 when inserted
  std::span<const float> score() const { return score_; }
  int columns() const { return static_cast<int>(column_.size()); }
  std::span<float> column(int c) { return column_[static_cast<std::size_t>(c)]; }
  std::span<const float> column(int c) const { return column_[static_cast<std::size_t>(c)]; }
  std::span<const int> rank() const { return rank_; }  // empty unless tracked; -1: no token
  bool rank_is_position() const { return rank_is_position_; }
  std::span<const int> inserted() const { return inserted_; }  // slots of the last insert, until the next drop
  Position next() const { return next_; }                      // position after the last token of the text
  // tokens_read(): tokens read, the ordinal of the next one. ordinal(): number of tokens read before this one.
  Position tokens_read() const { return edited() ? read_ : next_; }
  Position ordinal(int slot) const { return edited() ? ordinal_[static_cast<std::size_t>(slot)] : position(slot); }
  bool edited() const { return edited_; }  // an ordinal may differ from its position
  // Each token is in the slot of its position, as if all had been inserted into an empty table. O(1) if the text was
  // never edited or cut.
  bool as_inserted() const;
  bool cut() const { return cut_; }  // whether it must look

  // Reserves memory for apply(change), which then allocates nothing and cannot fail, if `change` has no shift, no `end`
  // and no `at`. Throws std::bad_alloc, unchanged except for view(). `moves`: the argument of the later apply().
  // Returns the number of pages to map, and whether earlier views are invalid.
  struct Reserved {
    int pages;
    bool views_invalidated;
  };
  Reserved reserve(const SlotChange& change, std::vector<Move>& moves);
  // Rejects, drops, shifts, inserts; then, if tokens were dropped, unmaps empty pages, but keeps free slots for those
  // that it dropped beyond those that it inserted. `moves` as in drop().
  void apply(const SlotChange& change, std::vector<Move>& moves);
  int pages_to_map(const SlotChange& change) const;  // how many apply(change) would
  // The slot of the i-th inserted token of `change`, for mechanisms that move no token; -1: in a page that is not yet
  // mapped.
  int next_slot(const SlotChange& change, int i) const;
  std::span<const int> mapped_pages_of_change() const { return mapped_; }  // by the last apply() or insert()
  std::span<const int> unmapped_pages_of_change() const {
    return unmapped_;
  }  // by the last apply() or release_empty_pages()
  void append_slots(PositionRange range, std::vector<int>& slots) const;  // of the tokens in `range`, oldest first
  bool occupied(PositionRange range) const;                               // whether `range` has a token

  // Drops `victims` (occupied slots, no duplicates). `moves` is empty with kInPlace and kAppend, and with kBlock if
  // they are all tokens of full pages.
  void drop(std::span<const int> victims, std::vector<Move>& moves);
  // Becomes a copy of `like`, of the same mechanism: the same tokens in the same slots. `scores`: copies scores and
  // columns (the number of columns must be equal); else they are 0.
  void copy_from(const SlotTable& like, bool scores);
  // Takes slots for tokens at positions next() .. next() + count - 1. Returns the newly mapped pages.
  std::span<const int> insert(int count);
  int pages_to_map(int count) const { return pages_to_map({.insert = count}); }  // how many insert(count) would
  // Unmaps empty pages but keeps `reserve` slots free. Returns the unmapped pages.
  std::span<const int> release_empty_pages(int reserve);
  // For in-place and append after scattered drops: moves the tokens of the last pages, as many pages as
  // release_empty_pages(reserve) can unmap then, into free slots before them (append: all survivors move down). `moves`
  // as in drop().
  void defragment(int reserve, std::vector<Move>& moves);
  // Removes the newest `count` tokens of the last insert: a rejected draft, a cancelled step. Their slots are the next
  // to be reused.
  void undo(int count);
  // Sets the next token's position, at least next(): a restored sequence resumes after a gap.
  void set_next(Position position);
  void clear() noexcept;  // no token, no page, position 0
  void shrink();          // frees memory beyond that of the slots; throws std::bad_alloc

  void save(ByteWriter& out) const;
  // `edited`: of the saved table. Throws Error for bytes that no table of this kind wrote; the table is unusable then.
  void load(ByteReader& in, bool edited = false);
  // The first violated invariant (listed in slots_check.cpp); nullptr: none. Sorts the tokens: not for hot paths.
  const char* fault() const;

  SlotsView view() const;                  // stays valid until the next change
  Position base() const { return base_; }  // SlotsView::relative = position - base
  // The relative position: position - base(). Positions 2^30 or more behind the base saturate at kSaturated, where
  // their order is lost: to test whether a token is among the first n, compare <= that of token n - 1, never < that of
  // n.
  std::int32_t relative_position(Position position) const;
  static constexpr std::int32_t kSaturated = PositionView::kSaturated;

  static std::size_t slot_bytes(bool track_rank, int columns);  // bookkeeping of one slot
  std::size_t bytes() const;  // relative positions, ranks, scores, columns, page counts, free queue

 private:
  static constexpr int kUnmapped = -1;
  static constexpr Position kRebaseAt = Position{1} << 30;  // relative positions are in [-2^30, 2^30 + one insert)

  const char* counts_fault() const;
  const char* positions_fault() const;
  const char* tokens_fault() const;
  const char* free_fault() const;
  void write(int slot, Position position, int rank);
  void erase(int slot);
  void move(int from, int to);
  void map_pages(int count);
  void map_page();
  void set_position(int slot, Position position);
  SaturatedToken* saturated_at(int slot);
  void vacate(int slot);
  void rebase();
  void rebase_if_far();
  void take_slots(int count, Position at);
  void shift(PositionRange range, Position by);
  void begin_edit();
  void resize(std::size_t slots);
  void drop_in_place(std::span<const int> victims);
  bool are_whole_pages(std::span<const int> victims);
  void compact(std::vector<Move>& moves);
  bool compacts() const { return traits_.moves_rows; }
  void drop_and_compact(std::span<const int> victims, std::vector<Move>& moves);
  void close_ranks(std::span<const int> victims);
  bool within_original() const { return track_rank_ && original_until_ > 0 && next_ <= original_until_; }
  void choose_ranks();
  void set_ranks();

  int page_size_, evicted_page_;
  MechanismTraits traits_;
  bool track_rank_, rank_is_position_;
  int original_until_;
  int occupied_ = 0, mapped_pages_ = 0, empty_pages_ = 0;  // empty: mapped, no token
  bool edited_ = false;
  bool cut_ = false;  // the end of the text may have been dropped: the next tokens took any slots
  Position next_ = 0, base_ = 0;
  Position next_before_ = 0;  // next_ before the last insert
  int later_ = 0;             // tokens at positions after those of the last insert
  Position read_ = 0;         // if edited
  std::vector<std::int32_t> relative_, rank_;
  std::vector<SaturatedToken> saturated_;  // sorted by slot
  std::vector<float> score_;
  std::vector<std::vector<float>> column_;
  std::vector<int> page_occupied_;  // kUnmapped, or tokens in the page
  std::vector<Position> ordinal_;   // if edited; kNoPosition: no token
  std::vector<int> inserted_, mapped_, unmapped_, counts_;
  ChangeLog changes_;
  SlotQueue free_;  // unused with shift and gather: there the free slots are those from occupied() on
};

}  // namespace palimpsest
