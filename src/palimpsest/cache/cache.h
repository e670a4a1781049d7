// The KV cache of one sequence: slot tables, block tables and pages of every layer and KV head.
//
//   engine                     cache                                      kernels
//   plan = evict(...)     ->   prepare(change)  takes all memory; may throw
//                              commit()         drops, slots for new  ->   write K and V into `fresh` slots, attend
//                              view(layer)      tokens; cannot fail   ->   plain data
//
// A change is prepared and then committed, or let go, and nothing has happened. In an ordinary step the k-th new token
// takes the k-th victim's slot, so it can be taken back until the model's step begins to write.
//
// One slot table serves all heads when every head decides alike (`shared`), or one for all heads that keep the same
// window; else each has its own. Heads are flat indices (cache/geometry.h).
// With `pages` off it is bookkeeping only: the bytes are in a CacheStorage, which hears of every move.
//
// Caches of one pool may share pages: share(). Whoever writes in one first makes it its own (copy-on-write), so none
// sees what another does after they parted.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/cache/geometry.h"
#include "palimpsest/cache/merged.h"
#include "palimpsest/cache/pages.h"
#include "palimpsest/cache/plan.h"
#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/storage.h"
#include "palimpsest/cache/transaction.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/workers.h"

namespace palimpsest {

struct CacheOptions {
  HeadGeometry geometry = {};
  int page_size = 16;  // slots in a page; a multiple of kTile
  Mechanism mechanism = Mechanism::kInPlace;
  bool shared = true;         // one slot table for all heads
  bool track_rank = false;    // keep ranks (kernels that rotate late)
  int columns = 0;            // floats of a policy's statistics that travel with each token, besides its score
  int head_floats = 0;        // of a policy's statistics of each head that belong to no token
  bool rotated_half = false;  // pages hold rotate_half(K) beside K
  int spare_slots = 0;        // free slots of each table for tentative tokens: the draft's maximum + 1; 0: no drafts
  bool pages = true;          // keys and values live in pages here; false: bookkeeping only, the bytes are elsewhere
  // [heads] A head of window w holds the newest w positions: whoever changes the cache drops those before them, which
  // no later query sees (evict/unseen.h). INT32_MAX: all positions. Empty: of all heads.
  std::vector<std::int32_t> windows = {};

  bool operator==(const CacheOptions&) const = default;
};

// [head] The slot table of each head.
std::vector<int> tables_of(const CacheOptions& options);

class Cache {
 public:
  // Without a pool the cache brings its own; with one, sequences of the same shape share it.
  explicit Cache(const CacheOptions& options, std::shared_ptr<PagePool> pool = nullptr);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const CacheOptions& options() const { return options_; }
  const HeadGeometry& geometry() const { return options_.geometry; }
  // Shared: one for each distinct window (1 without windows); else one for each head.
  int tables() const { return static_cast<int>(tables_.size()); }
  SlotTable& table(int t) { return tables_[static_cast<std::size_t>(t)]; }  // for scores; changes go through the cache
  const SlotTable& table(int t) const { return tables_[static_cast<std::size_t>(t)]; }
  // With mechanism merge: tokens that live in slots of others. Whoever changes them lays them anew before apply().
  MergedTokens* merged(int t) { return merged_.empty() ? nullptr : &merged_[static_cast<std::size_t>(t)]; }
  const MergedTokens* merged(int t) const { return merged_.empty() ? nullptr : &merged_[static_cast<std::size_t>(t)]; }
  int table_of(int head) const { return table_of_[static_cast<std::size_t>(head)]; }
  // Positions that a table's heads keep; INT32_MAX: all.
  std::int32_t window(int table) const { return windows_[static_cast<std::size_t>(table)]; }

  int occupied() const;  // tokens in the fullest table
  Position next() const { return tables_.front().next(); }
  // Statistics of a head, [head_floats]: 0 at first; saved, shared and cleared with the rest.
  std::span<float> of_head(int head);
  std::span<const float> of_head(int head) const;

  // All memory of a change; throws Error or std::bad_alloc, unchanged. Tables, pages and bytes are as they were until
  // commit; views taken before may hold no longer, new ones show the same. Pages that hold no token any more go back to
  // the pool as long as there stays room for as many tokens as were dropped beyond those inserted: a steady state never
  // hands pages to and fro. New tokens' rows are written into the `fresh` slots of the views.
  //
  // Merged tokens may change between prepare and commit of a change that only drops.
  Transaction prepare(const CacheChange& change);
  // In place and append, when many tokens here and there have left (the end of a prompt): those in the last pages move
  // to free slots before them. Pages without a token go back, whatever the mechanism, as long as there stays room for
  // `reserve` tokens.
  Transaction prepare_defragment(int reserve);

  // A change of one part, prepared and committed.
  void apply(const Plan& plan, Workers* workers = nullptr);
  void insert(int count);
  void undo(int count);                                      // CacheChange::reject
  bool defragment(int reserve, Workers* workers = nullptr);  // whether any token moved
  void resume_at(Position position);                         // the next token's position, not below next()
  // Edits of the text; throw Error if they cannot be. After drop() the positions stay empty, unless the range reaches
  // next(). After shift() the bookkeeping has the new positions and the stored keys are rotated at the old ones:
  // whoever rotated them when they were written rotates those of [first + by, last + by) by `by` before the next step.
  // Ranks need nothing. Unsupported with keys of q8_0 (rotated keys would be rounded once more) and for merged tokens.
  void drop(Position first, Position last);
  void shift(Position first, Position last, Position by);

  // Pages that another cache has, too, become this one's own, all of them: before tokens of theirs are changed. Throws
  // Error if there is no memory.
  void make_exclusive();
  // What the last change moved in this table (nothing if in place). Already done to the bytes if `pages`.
  const std::vector<Move>& moves(int table) const { return moves_[static_cast<std::size_t>(table)]; }
  void clear() noexcept;

  // Becomes what `other` is, of the same pool; its pages are shared. Takes no page. Options of another mechanism, of
  // other tables or with ranks are fine if can_share(): then it is as if this one had taken those tokens in; scores and
  // statistics come along if both have a table for each head, and as many statistics of either kind. Throws
  // std::bad_alloc, unchanged.
  void share(Cache& other);
  bool can_share(const Cache& other) const { return options_ == other.options_ || other.serves(options_); }
  // Whether another kind of cache that had read the same tokens, and had evicted none, would have this one's slots:
  // none was evicted here; what windows dropped left the slots to the mechanism, so windows and mechanism are the same.
  bool serves(const CacheOptions& kind) const;
  std::unique_ptr<Cache> fork();      // another that shares all of this one's
  bool nothing_evicted() const;       // every token is still there, in every table
  std::vector<PageId> pages() const;  // that it holds, of all heads

  // Slot tables and the bytes of all pages. Only with `pages`. load() takes pages from the pool and throws Error, with
  // the cache cleared, for bytes that no cache of these options wrote.
  void save(ByteWriter& out) const;
  // Reads the beginning: what the rest was saved with that these options have not; empty: it may suit them.
  static std::string mismatch(const CacheOptions& options, ByteReader& in);
  void load(ByteReader& in);
  // The same in parts, for a cache without a token: its pages are taken by the pool's thread, at most `max` at a call
  // (false: there are more), the rest may be done by any. After an Error only clear() may follow.
  void load_tables(ByteReader& in);
  bool take_pages(int max);
  void load_pages(ByteReader& in);
  // Which invariant does not hold: of a table (SlotTable::fault), between tables, of statistics; nullptr: all hold.
  const char* fault() const;

  LayerView view(int layer) const;  // valid until the next change
  const HeadPages& head(int head) const { return head_views_[static_cast<std::size_t>(head)]; }  // likewise

  // Without `pages`: the bytes are there from now on, for as long as this cache lives.
  void attach(std::unique_ptr<CacheStorage> storage);
  CacheStorage* storage() const { return storage_.get(); }  // nullptr: none yet

  std::size_t bytes_in_use() const;  // pages held, of all layers and heads, or what the storage holds
  std::size_t bytes_peak() const;
  std::size_t bytes_tables() const;  // positions, ranks, scores, statistics, block tables
  double slots_per_token() const;    // slots of mapped pages / live tokens, of all tables; 0 without a token
  // Tokens dropped, once per token whatever the number of heads: mean over the tables without a window, or over all if
  // each has one. Tokens that are outside a window are not counted (CacheChange::unseen).
  long long evicted() const { return dropped_ / counted_tables_; }

 private:
  const char* fault_across_tables() const;
  bool complete(int table) const;
  bool counts(int table) const { return windows_[static_cast<std::size_t>(table)] == INT32_MAX || !some_keep_all_; }
  struct Kind {  // of saved bytes
    bool edited = false, windows = false;
  };
  static std::string mismatch(const CacheOptions& options, ByteReader& in, Kind& kind);
  friend class Transaction;
  struct Copy {  // a shared page that a change writes to
    int table, page;
    bool tokens = true;  // it has some
  };
  // What was prepared. Its memory is kept from change to change.
  struct Pending {
    bool open = false, views_moved = false;
    long long dropped = 0;                 // by a plan, of all tables
    std::size_t mapped = 0, gathered = 0;  // new pages of all heads
    CacheChange change;
    Position end = kNoPosition;             // an edit's: next() falls to it
    std::vector<std::vector<int>> victims;  // [table] of an edit
    std::vector<Copy> copies;
    // Those newly mapped; for the copies one for each of the table's heads, kNoPage: no other cache has it any more;
    // gathered heads' new pages.
    std::vector<PageId> pages;
    // Of a change that is carried out on copies: what the tables become, what moves, what merged tokens become.
    std::vector<SlotTable> simulated;
    std::vector<std::vector<Move>> moves;
    std::vector<MergedTokens> merged;
  };

  Transaction begin();
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
  // These take from the prepared pages on and return the first that is left.
  const PageId* copy_page(const Copy& copy, const PageId* page) noexcept;
  const PageId* relocate_bytes(const PageId* page, Workers* workers) noexcept;
  const PageId* map_pages(int table, const PageId* page) noexcept;
  void unmap_pages(int table) noexcept;
  void held(std::size_t pages) noexcept;

  void refresh_views() noexcept;
  int heads() const { return options_.geometry.heads(); }
  template <typename Do>
  void for_each_head_of(int table, Do action);  // action(block table of a head)
  void give_back(PageId& page) noexcept;
  PageId take();
  void make_exclusive(int table, int page);
  void clear_shared(int table, int page) noexcept;

  CacheOptions options_;
  std::shared_ptr<PagePool> pool_;
  std::unique_ptr<CacheStorage> storage_;
  std::vector<SlotTable> tables_;
  std::vector<int> table_of_;                    // [head]
  std::vector<std::int32_t> windows_;            // [table]
  bool some_keep_all_ = true;                    // a table has no window
  int counted_tables_ = 1;                       // for evicted()
  std::vector<float> of_heads_;                  // [head][head_floats]
  std::vector<std::vector<PageId>> blocks_;      // [head][page]
  std::vector<MergedTokens> merged_;             // [table], empty unless the mechanism is merge
  std::vector<SlotsView> slot_views_;            // [table]
  std::vector<MergedView> merged_views_;         // [table] or empty
  std::vector<HeadPages> head_views_;            // [head]
  std::vector<std::vector<Move>> moves_;         // [table]
  std::vector<std::vector<bool>> shared_pages_;  // [table][page, or fewer] another cache may have it, too
  int lent_pages_ = 0;                           // of all tables; 0 as long as nobody shares
  Pending pending_;
  long long dropped_ = 0;  // summed over tables
  std::size_t pages_held_ = 0, peak_ = 0;
};

template <typename Do>
void Cache::for_each_head_of(int table, Do action) {
  if (!options_.pages) return;
  if (!options_.shared) {
    action(blocks_[static_cast<std::size_t>(table)]);
    return;
  }
  for (std::size_t head = 0; head < blocks_.size(); ++head)
    if (table_of_[head] == table) action(blocks_[head]);
}

}  // namespace palimpsest
