// The KV cache of one sequence: slot tables, block tables and pages of every layer and KV head.
//
//   engine                     cache                                      kernels
//   plan = evict(...)     ->   prepare(change)  takes all memory; may throw
//                              commit()         drops, slots for new  ->   write K and V into inserted slots, attend
//                              view(layer)      tokens; cannot fail   ->   plain data
//
// A change is prepared, then committed or rolled back. In an ordinary step the k-th new token takes the k-th victim's
// slot, so a rollback is possible until the model's step begins to write.
//
// With `shared`, all heads that have the same window use one slot table, and evict the same tokens; else each head has
// its own. Heads are flat indices (cache/geometry.h).
// With `pages` off the cache is bookkeeping only: the bytes are in a CacheStorage, which is told of every move.
//
// Caches of one pool may share pages: share(). Pages are copied on write.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/cache/geometry.h"
#include "palimpsest/cache/merged.h"
#include "palimpsest/cache/pages.h"
#include "palimpsest/cache/recurrent_state.h"
#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/storage.h"
#include "palimpsest/cache/transaction.h"
#include "palimpsest/cache/victims.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/workers.h"

namespace palimpsest {

struct CacheOptions {
  HeadGeometry geometry = {};
  int page_size = 16;    // slots in a page; a multiple of kTile
  int evicted_page = 0;  // tokens that mechanism block drops at once, a divisor of page_size; 0: page_size
  Mechanism mechanism = Mechanism::kInPlace;
  bool shared = true;            // one slot table for all heads
  bool track_rank = false;       // keep ranks (for kernels that rotate on read)
  int original_until = 0;        // ranks are positions until the text has more tokens
  int columns = 0;               // floats of a policy's statistics per token, besides its score
  int head_floats = 0;           // floats of a policy's statistics per head
  std::size_t state_floats = 0;  // of the sequence's recurrent layers (cache/recurrent_state.h)
  bool rotated_half = false;     // pages hold rotate_half(K) beside K
  bool pages = true;             // keys and values are stored in this cache's pages; false: in a CacheStorage
  // [heads] A head of window w holds the newest w positions: the caller drops older ones, which no later query sees
  // (evict/out_of_window.h). INT32_MAX: all positions. Empty: all positions, for all heads.
  std::vector<std::int32_t> windows = {};

  bool operator==(const CacheOptions&) const = default;
};

// Throws Error for a page size that no cache can have. `name`: of the option, in the message.
void check_page_size(int page_size, std::string_view name = "page size");

// [head] The slot table of each head.
std::vector<int> tables_of(const CacheOptions& options);

// [head] Bytes of a page of each head: as the widths of its layer's keys and values.
std::vector<std::size_t> page_bytes_of_heads(const CacheOptions& options);
// A pool of pages of these sizes, for caches of the same shape of pages. Throws Error for options that no cache can
// have.
std::shared_ptr<PagePool> make_pool(const CacheOptions& options);

class Cache {
 public:
  // nullptr: the cache makes its own pool.
  // Requires: a given pool is of a cache with the same shape of pages. Throws Error for options that no cache can have.
  explicit Cache(const CacheOptions& options, std::shared_ptr<PagePool> pool = nullptr);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const CacheOptions& options() const { return options_; }
  const HeadGeometry& geometry() const { return options_.geometry; }
  const std::shared_ptr<PagePool>& pool() const { return pool_; }  // nullptr without `pages`
  // With CacheOptions::shared: one per distinct window (1 without windows); else one per head.
  int tables() const { return static_cast<int>(tables_.size()); }
  SlotTable& table(int t) { return tables_[static_cast<std::size_t>(t)]; }  // for scores; changes go through the cache
  const SlotTable& table(int t) const { return tables_[static_cast<std::size_t>(t)]; }
  // Mechanism merge only: tokens merged into other tokens' slots.
  // Requires: after changing them their layout is rebuilt, before the cache's next change.
  MergedTokens* merged(int t) { return merged_.empty() ? nullptr : &merged_[static_cast<std::size_t>(t)]; }
  const MergedTokens* merged(int t) const { return merged_.empty() ? nullptr : &merged_[static_cast<std::size_t>(t)]; }
  // Mechanism match only, else empty: the bias of each slot (SlotsView::bias), in the table's last column.
  std::span<float> biases(int t) {
    return traits(options_.mechanism).fits ? table(t).column(options_.columns - 1) : std::span<float>();
  }
  int table_of(int head) const { return table_of_[static_cast<std::size_t>(head)]; }
  // The window of a table's heads, in positions; INT32_MAX: all.
  std::int32_t window(int table) const { return windows_[static_cast<std::size_t>(table)]; }

  int occupied() const;  // tokens in the fullest table
  int slots() const;     // of the largest table
  Position next() const { return tables_.front().next(); }
  // A head's statistics, [head_floats]: initially 0; saved, shared and cleared with the rest.
  std::span<float> head_statistics(int head);
  std::span<const float> head_statistics(int head) const;
  // The state of layers without a cache, if there are such: shared, saved and cleared with the rest; rejected tokens
  // leave it.
  RecurrentState& state() { return state_; }
  const RecurrentState& state() const { return state_; }

  // Acquires all memory of a change; throws Error or std::bad_alloc, unchanged. Tables, pages and bytes do not change
  // until commit. Invalidates earlier views; new ones show the same. Commit releases empty pages to the pool but keeps
  // free slots for (tokens dropped - tokens inserted), so that a steady state neither takes nor releases pages. The
  // rows of new tokens are written into SlotsView::inserted.
  //
  // Merged tokens may change between prepare and commit if the change only drops.
  // Requires: no other change is prepared. An edit is of all tables.
  Transaction prepare(const CacheChange& change);
  // For in-place and append after scattered evictions (the end of a prompt): tokens in the last pages move to free
  // slots before them. With any mechanism, empty pages are released, but free slots for `reserve` tokens are kept.
  // Requires: no other change is prepared.
  Transaction prepare_defragment(int reserve, TableRange tables = {});

  // Each prepares and commits a change of one part.
  void apply(const Victims& plan, Workers* workers = nullptr);
  void insert(int count);
  // CacheChange::reject. Requires: the newest `count` tokens were inserted by the last change.
  void undo(int count);
  bool defragment(int reserve, Workers* workers = nullptr, TableRange tables = {});  // whether any token moved
  // Frees memory that the bookkeeping of these tables no longer needs. Throws std::bad_alloc.
  // Requires: no change is prepared.
  void shrink(TableRange tables);
  // Sets the next token's position. Requires: position >= next().
  void set_next(Position position);
  // Edits of the text; throw Error if unsupported. After drop() the positions stay empty, unless the range reaches
  // next(). shift() changes the bookkeeping only: with keys stored rotated by position (kOnWrite) the caller rotates
  // those of [first + by, last + by) by `by` before the next step; keys rotated by rank need no change. Unsupported for
  // q8_0 keys (rotated keys would be rounded a second time), merged tokens and recurrent layers, whose state has read
  // the text as it was; drop() of the whole text clears that.
  void drop(Position first, Position last);
  void shift(Position first, Position last, Position by);

  // Drafts that take no slots: what they would change in each table (SlotsView::patches). Views show it until the next
  // change. Throws std::bad_alloc, unchanged.
  // Requires: one list per table; no change is prepared.
  void preview(std::span<const std::vector<SlotPatch>> patches);

  // Copies every page that another cache shares, so that its tokens can be changed. Throws Error when out of memory.
  void make_exclusive();
  // Slots that the last change moved in this table (none if in place). With `pages` the bytes have moved, too.
  const std::vector<Move>& moves(int table) const { return moves_[static_cast<std::size_t>(table)]; }
  // Requires: no change is prepared.
  void clear() noexcept;

  // Becomes a copy of `other` and shares its pages; of a storage it gets a copy. Takes no page. The options may differ
  // in mechanism, tables and ranks: the result is as if this cache had inserted the same tokens. Scores and statistics
  // are copied if the options are equal, or if both have a table per head and as many columns. Throws std::bad_alloc,
  // unchanged; Error, empty, if there is no memory for a copy of the storage.
  // Requires: can_share(other); both have the same pool; no change is prepared. Without `pages` both have a storage.
  void share(Cache& other);
  bool can_share(const Cache& other) const { return options_ == other.options_ || other.compatible_with(options_); }
  // Whether a cache of options `kind` that had read the same tokens and evicted none would have the same slots. True
  // if this cache evicted none, and either all tokens are present and inside the windows of `kind`, or windows,
  // and mechanism are equal (reuse of slots after window drops depends on them).
  bool compatible_with(const CacheOptions& kind) const;
  // Tokens in `range` that both hold get the keys and values of `like`. Throws Error when out of memory.
  // Requires: the same geometry, size of pages and rotated halves; both with `pages`; no change is prepared.
  void copy_rows(const Cache& like, PositionRange range);
  std::unique_ptr<Cache> fork();      // a new cache that shares all pages of this one
  bool nothing_evicted() const;       // every table still has every token
  std::vector<PageId> pages() const;  // the pages held, of all heads

  // Saves slot tables and the bytes of all pages, or of those that a storage's rows would be in. load() takes pages
  // from the pool; for bytes that no cache of these options wrote it clears the cache and throws Error.
  // Requires: without `pages`, a storage is attached.
  void save(ByteWriter& out) const;
  // Reads the header: which of the options differs from those that the rest was saved with; empty: none.
  static std::string mismatch(const CacheOptions& options, ByteReader& in);
  void load(ByteReader& in);
  // load() in parts: take_pages() runs on the pool's thread and takes at most `max` pages (false: call again); the
  // others may run on any thread. After an Error only clear() is allowed. Requires: the cache is empty; they are called
  // in this order.
  void load_tables(ByteReader& in);
  bool take_pages(int max);
  void load_pages(ByteReader& in);
  // The first violated invariant: of a table (SlotTable::fault), across tables, of statistics; nullptr: none.
  const char* fault() const;

  LayerView view(int layer) const;  // valid until the next change
  const HeadPages& head(int head) const { return head_views_[static_cast<std::size_t>(head)]; }  // likewise

  // Sets the storage of the bytes, for the lifetime of this cache. Requires: !options().pages.
  void attach(std::unique_ptr<CacheStorage> storage);
  // The tables' scores are up to date again, if the storage has newer ones.
  void fetch_scores();
  CacheStorage* storage() const { return storage_.get(); }  // nullptr: none yet

  std::size_t bytes_in_use() const;  // of pages held, of all layers and heads, or of the storage
  std::size_t bytes_peak() const;
  std::size_t bytes_tables() const;  // positions, ranks, scores, statistics, block tables
  double slots_per_token() const;    // slots of mapped pages / tokens, of all tables; 0 without a token
  // Tokens evicted: the mean over tables without a window, or over all tables if each has one. Tokens dropped because
  // they are outside a window do not count (CacheChange::out_of_window).
  long long evicted() const { return evicted_since(0); }
  long long dropped() const { return dropped_; }  // the sum over these tables
  // Since dropped() was `before`. A difference of two means, each rounded down, would be off by one.
  long long evicted_since(long long before) const { return (dropped_ - before) / counted_tables_; }
  // How often keys of a type of 4 bits were rotated in place, after a shift of the text: each time rounds them. Saved
  // and shared with the cache.
  int key_moves() const { return key_moves_; }
  void count_key_move() { ++key_moves_; }

 private:
  const char* fault_across_tables() const;
  bool has_whole_window(int table) const;
  bool counts_evictions(int table) const {
    return windows_[static_cast<std::size_t>(table)] == INT32_MAX || !some_unwindowed_;
  }
  struct Kind {  // of saved bytes
    bool edited = false, windows = false, halves = false;
    int key_moves = 0;
  };
  static std::string mismatch(const CacheOptions& options, ByteReader& in, Kind& kind);
  void save_pages(ByteWriter& out) const;
  void save_storage(ByteWriter& out) const;
  void load_storage(ByteReader& in);
  friend class Transaction;
  struct Copy {  // a shared page that a change writes to
    int table, page;
    bool has_tokens = true;  // the page holds tokens
  };
  // The prepared change. Its memory is reused.
  struct Pending {
    bool open = false, views_invalidated = false;
    long long dropped = 0;                 // by a plan, of all tables
    std::vector<std::size_t> mapped = {};  // [table] new pages of each of its heads, for inserts
    std::vector<std::size_t> wanted =
        {};  // [size of pages] new pages of all heads: these, and those of mechanism gather
    std::size_t wanted_in_all = 0;
    CacheChange change;
    Position end = kNoPosition;             // of an edit: next() falls to it
    std::vector<std::vector<int>> victims;  // [table] of an edit
    std::vector<Copy> copies;
    // In this order: newly mapped pages; for each of `copies` one per head of its table (kNoPage: no longer shared);
    // new pages of mechanism gather.
    std::vector<PageId> pages;
    // The new tables, moves and merged tokens of a change that is simulated on copies; those of change.tables.
    std::vector<SlotTable> simulated;
    std::vector<std::vector<Move>> moves;
    std::vector<MergedTokens> merged;
  };

  Transaction begin(const CacheChange& change);
  // CacheChange::tables of the prepared change, without those that do not exist.
  const TableRange& changing() const { return pending_.change.tables; }
  SlotTable& simulated(int table) { return pending_.simulated[static_cast<std::size_t>(table - changing().first)]; }
  SlotChange change_of(std::size_t table) const;
  void add_edit(const CacheChange& change);
  void check_windows(const CacheChange& change, Position end) const;
  template <typename Change>
  void simulate(Change change);  // change(table, its index, moves)
  void add_copies(int table);
  void add_copy(int table, int page);
  bool gathers(int table) const;
  void reserve_pages(int table, int mapped, int pages);
  void take_pages();
  void rollback() noexcept;
  void commit(Workers* workers) noexcept;
  void end() noexcept;
  // These consume prepared pages from `page` on and return the first one left.
  const PageId* copy_page(const Copy& copy, const PageId* page) noexcept;
  const PageId* relocate_bytes(const PageId* page, Workers* workers) noexcept;
  const PageId* map_pages(int table, const PageId* page) noexcept;
  void unmap_pages(int table) noexcept;
  void held(std::size_t bytes) noexcept;

  void refresh_views() noexcept;
  int heads() const { return options_.geometry.heads(); }
  template <typename Do>
  void for_each_head_of(int table, Do action);  // action(head)
  std::vector<PageId>& blocks_of(int head) { return blocks_[static_cast<std::size_t>(head)]; }
  std::size_t page_bytes_of(int head) const { return pool_->page_bytes(size_of_[static_cast<std::size_t>(head)]); }
  void release(PageId& page) noexcept;
  PageId take(int head);
  void make_exclusive(int table, int page);
  void clear_shared(int table, int page) noexcept;

  CacheOptions options_;
  std::shared_ptr<PagePool> pool_;
  std::unique_ptr<CacheStorage> storage_;
  std::vector<SlotTable> tables_;
  std::vector<int> table_of_;           // [head]
  std::vector<int> size_of_;            // [head] of its pages: an index of the pool's sizes; empty without `pages`
  std::vector<std::int32_t> windows_;   // [table]
  bool some_unwindowed_ = true;         // a table has no window
  int counted_tables_ = 1;              // for evicted()
  std::vector<float> head_statistics_;  // [head][head_floats]
  RecurrentState state_;
  std::vector<std::vector<PageId>> blocks_;      // [head][page]
  std::vector<MergedTokens> merged_;             // [table], empty unless the mechanism is merge
  std::vector<SlotsView> slot_views_;            // [table]
  std::vector<MergedView> merged_views_;         // [table] or empty
  std::vector<HeadPages> head_views_;            // [head]
  std::vector<std::vector<Move>> moves_;         // [table]
  std::vector<std::vector<SlotPatch>> patches_;  // [table], or none
  std::vector<std::vector<bool>> shared_pages_;  // [table][page, or fewer] another cache may use it
  int shared_page_count_ = 0;                    // count of shared_pages_ that are true
  Pending pending_;
  long long dropped_ = 0;  // summed over tables
  int key_moves_ = 0;
  std::size_t held_ = 0, peak_ = 0;  // bytes of pages
};

template <typename Do>
void Cache::for_each_head_of(int table, Do action) {
  if (!options_.pages) return;
  if (!options_.shared) {
    action(table);
    return;
  }
  for (int head = 0; head < heads(); ++head)
    if (table_of(head) == table) action(head);
}

}  // namespace palimpsest
