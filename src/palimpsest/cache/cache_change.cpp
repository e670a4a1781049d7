// Changes of a cache: Cache::prepare acquires all memory, Cache::commit cannot fail.
//
// In an ordinary step each table reserves memory and changes in place. Rare changes (edits of the text,
// defragmentation, mechanism block while pages are shared) are simulated on copies of the tables, which commit swaps
// in.
#include <algorithm>
#include <cassert>
#include <functional>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/relocate_rows.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/growth.h"

namespace palimpsest {
void Transaction::commit(Workers* workers) noexcept {
  assert(cache_ != nullptr);
  std::exchange(cache_, nullptr)->commit(workers);
}

void Transaction::rollback() noexcept {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->rollback();
}

Transaction Cache::begin(const CacheChange& change) {
  assert(!pending_.open && "one change at a time");
  pending_.open = true;
  pending_.change = change;
  pending_.change.tables.last = std::min(change.tables.last, tables());
  return Transaction(*this);
}

Transaction Cache::prepare(const CacheChange& change) {
  Transaction transaction = begin(change);
  assert(change.drop.empty() || change.drop.size() == tables_.size());
  assert(change.out_of_window.empty() || change.out_of_window.size() == tables_.size());
  const bool append = change.at == kNoPosition || (change.insert > 0 && change.at == next());
  if (append) pending_.change.at = kNoPosition;
  const bool edit = !append || !change.drop_range.empty() || !change.shift_range.empty();
  const bool on_copies = edit || (shared_page_count_ > 0 && traits(options_.mechanism).whole_pages &&
                                  !(change.drop.empty() && change.out_of_window.empty()));
  for (std::size_t t = 0; t < change.drop.size(); ++t)
    if (counts_evictions(static_cast<int>(t))) pending_.dropped += std::ssize(change.drop[t]);
  for (int t = changing().first; !on_copies && t < changing().last; ++t) {
    const auto [pages, views_invalidated] = table(t).reserve(change_of(at(t)), moves_[at(t)]);
    pending_.views_invalidated |= views_invalidated;
    reserve_pages(t, pages, table(t).pages() + pages);
  }
  assert(!edit || changing() == (TableRange{0, tables()}));
  if (edit) add_edit(change);
  if (on_copies)
    simulate([&](SlotTable& table, std::size_t t, std::vector<Move>& moves) { table.apply(change_of(t), moves); });
  take_pages();
  return transaction;
}

SlotChange Cache::change_of(std::size_t t) const {
  const Pending& p = pending_;
  const CacheChange& c = p.change;
  SlotChange own = {.reject = c.reject,
                    .end = p.end,
                    .shift_range = c.shift_range,
                    .shift_by = c.shift_by,
                    .insert = c.insert,
                    .at = c.at};
  if (!p.victims.empty())
    own.drop = p.victims[t];
  else
    own.drop = c.dropped_by(t);
  return own;
}

Transaction Cache::prepare_defragment(int reserve, TableRange tables) {
  Transaction transaction = begin({.tables = tables});
  simulate([&](SlotTable& table, std::size_t, std::vector<Move>& moves) {
    table.defragment(reserve, moves);
    table.release_empty_pages(reserve);
  });
  for (int t = changing().first; !merged_.empty() && t < changing().last; ++t) {
    MergedTokens& merged = pending_.merged.emplace_back(merged_[at(t)]);
    merged.apply_moves(pending_.moves[at(t)]);
    merged.build_layout(simulated(t));
  }
  take_pages();
  return transaction;
}

template <typename Change>
void Cache::simulate(Change change) {
  pending_.moves.resize(tables_.size());
  pending_.simulated.reserve(at(changing().last - changing().first));
  for (int t = changing().first; t < changing().last; ++t) {
    SlotTable& table = pending_.simulated.emplace_back(tables_[at(t)]);
    change(table, at(t), pending_.moves[at(t)]);
    reserve_pages(t, static_cast<int>(table.mapped_pages_of_change().size()), table.pages());
  }
}

// Lists a page to copy if it is shared: the change moves or writes tokens there.
void Cache::add_copy(int t, int page) {
  if (at(page) >= shared_pages_[at(t)].size() || !shared_pages_[at(t)][at(page)]) return;
  for (auto copy = pending_.copies.rbegin(); copy != pending_.copies.rend() && copy->table == t; ++copy)
    if (copy->page == page) return;
  pending_.copies.push_back({t, page});
}

// Lists the shared pages that the change writes to.
void Cache::add_copies(int t) {
  const SlotChange change = change_of(at(t));
  const int page_size = options_.page_size;
  if (!pending_.simulated.empty()) {
    const bool gathers = traits(options_.mechanism).copies_rows && !pending_.moves[at(t)].empty();
    if (gathers) return;
    for (const Move& move : pending_.moves[at(t)])
      if (move.from != move.to) add_copy(t, move.to / page_size);
    for (int i = 0; i < change.insert; ++i) add_copy(t, simulated(t).inserted()[at(i)] / page_size);
    return;
  }
  const SlotTable& table = this->table(t);
  if (!traits(options_.mechanism).moves_rows) {
    for (int i = 0; i < change.insert; ++i) {
      const int slot = table.next_slot(change, i);
      if (slot < 0) break;
      add_copy(t, slot / page_size);
    }
    return;
  }
  if (gathers(t)) return;  // gather writes to new pages only
  const int occupied = table.occupied() - change.reject - static_cast<int>(change.drop.size());
  const int first = change.drop.empty() ? occupied : std::ranges::min(change.drop);
  for (int slot = first; slot < occupied + change.insert; slot = (slot / page_size + 1) * page_size)
    add_copy(t, slot / page_size);
}

bool Cache::gathers(int t) const {
  if (!traits(options_.mechanism).copies_rows) return false;
  const SlotChange change = change_of(at(t));
  return !change.drop.empty() && table(t).occupied() > change.reject + static_cast<int>(change.drop.size());
}

// Counts a table's new pages and reserves the other memory that commit writes to.
void Cache::reserve_pages(int t, int mapped, int pages) {
  Pending& p = pending_;
  const auto want = [&](int head, std::size_t count) {
    if (!options_.pages) return;
    p.wanted[at(size_of_[at(head)])] += count;
    p.wanted_in_all += count;
  };
  if (mapped > 0) {
    for_each_head_of(t, [&](int head) {
      reserve_for(blocks_of(head), at(pages));
      want(head, at(mapped));
    });
    p.mapped[at(t)] = at(mapped);
    p.views_invalidated = true;
    if (MergedTokens* const tokens = merged(t)) tokens->reserve_slots(pages * options_.page_size);
  }
  if (gathers(t)) for_each_head_of(t, [&](int head) { want(head, blocks_of(head).size()); });
  if (storage_ != nullptr) storage_->reserve_moves(t, table(t).slots());
}

void Cache::take_pages() {
  if (pending_.views_invalidated) refresh_views();
  if (!options_.pages) return;
  Pending& p = pending_;
  std::size_t copies = 0;
  for (int t = changing().first; shared_page_count_ > 0 && t < changing().last; ++t) add_copies(t);
  for (const Copy& copy : p.copies) for_each_head_of(copy.table, [&](int) { ++copies; });
  if (p.wanted_in_all + copies == 0) return;
  p.pages.reserve(p.wanted_in_all + copies);
  const auto take = [&](int head, std::size_t count) {
    for (; count > 0; --count) p.pages.push_back(pool_->take(size_of_[at(head)]));
  };
  pool_->reserve(p.wanted);
  for (int t = changing().first; t < changing().last; ++t)
    if (p.mapped[at(t)] > 0) for_each_head_of(t, [&](int head) { take(head, p.mapped[at(t)]); });
  for (Copy& copy : p.copies) {
    copy.has_tokens = table(copy.table).occupied_in_page(copy.page) > 0;
    for_each_head_of(copy.table,
                     [&](int head) { p.pages.push_back(pool_->take_for_copy(blocks_of(head)[at(copy.page)])); });
  }
  for (int head = 0; traits(options_.mechanism).copies_rows && head < heads(); ++head)
    if (changing().contains(table_of(head)) && gathers(table_of(head))) take(head, blocks_of(head).size());
}

void Cache::rollback() noexcept {
  for (const PageId page : pending_.pages)
    if (page != kNoPage) pool_->release(page);
  end();
  refresh_views();  // memory may have moved
}

void Cache::end() noexcept {
  Pending& p = pending_;
  p.open = p.views_invalidated = false;
  p.dropped = 0;
  p.end = kNoPosition;
  std::ranges::fill(p.mapped, 0);
  std::ranges::fill(p.wanted, 0);
  p.wanted_in_all = 0;
  p.pages.clear();
  p.copies.clear();
  p.victims.clear();
  p.simulated.clear();
  p.moves.clear();
  p.merged.clear();
}

void Cache::commit(Workers* workers) noexcept {
  Pending& p = pending_;
  const PageId* page = p.pages.data();
  const TableRange tables = changing();
  bool moved = false, unmapped = false;
  patches_.clear();
  for (int t = 0; t < this->tables(); ++t) {
    std::vector<Move>& moves = moves_[at(t)];
    if (!tables.contains(t)) {
      moves.clear();
      continue;
    }
    if (p.simulated.empty()) {
      table(t).apply(change_of(at(t)), moves);
    } else {
      std::swap(table(t), simulated(t));
      moves.swap(p.moves[at(t)]);
    }
    unmapped |= !table(t).unmapped_pages_of_change().empty();
    if (moves.empty()) continue;
    moved = true;
    if (storage_ != nullptr) storage_->on_moves(t, moves);
  }
  dropped_ += p.dropped;
  state_.reject(p.change.reject);
  if (p.end == 0) state_.clear();
  if (options_.pages) {
    for (int t = tables.first; t < tables.last; ++t) page = map_pages(t, page);
    for (const Copy& copy : p.copies) page = copy_page(copy, page);
    if (moved) page = relocate_bytes(page, workers);
    assert(page == p.pages.data() + p.pages.size());
    for (int t = tables.first; unmapped && t < tables.last; ++t) unmap_pages(t);
  }
  for (int t = tables.first; !merged_.empty() && t < tables.last; ++t) {
    if (!p.merged.empty())
      std::swap(merged_[at(t)], p.merged[at(t - tables.first)]);
    else if (!table(t).mapped_pages_of_change().empty())
      merged_[at(t)].extend(table(t).slots());
  }
  refresh_views();
  end();
}

const PageId* Cache::copy_page(const Copy& copy, const PageId* page) noexcept {
  for_each_head_of(copy.table, [&](int head) {
    const PageId own = *page++;
    if (own == kNoPage) return;
    PageId& old = blocks_of(head)[at(copy.page)];
    pool_->replace(old, own, copy.has_tokens);
    old = own;
  });
  clear_shared(copy.table, copy.page);
  return page;
}

// Moves each head's rows, independently of other heads. With mechanism gather they go to new pages, as many as the head
// had before the change.
const PageId* Cache::relocate_bytes(const PageId* page, Workers* workers) noexcept {
  const bool gather = traits(options_.mechanism).copies_rows;
  const PageId* const copies = page;
  const auto table_of = [&](std::size_t h) { return at(table_of_[h]); };
  const auto gathered = [&](std::size_t h) {
    const std::size_t t = table_of(h);
    return !gather || moves_[t].empty() ? 0 : blocks_[h].size() - tables_[t].mapped_pages_of_change().size();
  };
  const auto copies_of = [&](std::size_t head) {
    const PageId* own = copies;
    for (std::size_t h = 0; h < head; ++h) own += gathered(h);
    return own;
  };
  const auto relocate_head = [&](int head) {
    const auto h = at(head);
    const std::vector<Move>& moves = moves_[table_of(h)];
    if (moves.empty()) return;
    const BlockTable old = pool_->table(blocks_[h]);
    relocate_rows(view(options_.geometry.layer_of(head)), old,
                  gather ? BlockTable{copies_of(h), old.base, old.stride} : old, moves);
  };
  if (workers != nullptr)
    workers->run(heads(), std::cref(relocate_head));
  else
    for (int head = 0; head < heads(); ++head) relocate_head(head);
  if (!gather) return page;
  page = copies_of(blocks_.size());
  for (const PageId* copy = copies; copy < page; ++copy) held(pool_->bytes_of(*copy));
  const PageId* next = copies;
  for (std::size_t h = 0; h < blocks_.size(); ++h)
    for (PageId& old : std::span(blocks_[h]).first(gathered(h))) {
      release(old);
      old = *next++;
    }
  for (int t = 0; t < tables(); ++t) {
    if (moves_[at(t)].empty()) continue;
    for (std::size_t n = 0; n < shared_pages_[at(t)].size(); ++n) clear_shared(t, static_cast<int>(n));
  }
  return page;
}

// Gives the heads of a table the pages that it mapped. Runs before bytes move: they may move there.
const PageId* Cache::map_pages(int t, const PageId* page) noexcept {
  const auto mapped = table(t).mapped_pages_of_change();
  if (mapped.empty()) return page;
  for_each_head_of(t, [&](int head) {
    std::vector<PageId>& blocks = blocks_of(head);
    blocks.resize(std::max(blocks.size(), at(table(t).pages())), kNoPage);
    for (const int n : mapped) blocks[at(n)] = *page++;
    held(mapped.size() * page_bytes_of(head));
  });
  return page;
}

// Releases the heads' pages that a table unmapped. Runs after bytes have moved: they may move from there.
void Cache::unmap_pages(int t) noexcept {
  const auto unmapped = table(t).unmapped_pages_of_change();
  if (unmapped.empty()) return;
  for_each_head_of(t, [&](int head) {
    std::vector<PageId>& blocks = blocks_of(head);
    for (const int n : unmapped) release(blocks[at(n)]);
    blocks.resize(at(table(t).pages()), kNoPage);
  });
  for (const int n : unmapped) clear_shared(t, n);
}

void Cache::held(std::size_t bytes) noexcept {
  held_ += bytes;
  peak_ = std::max(peak_, held_);
}

void Cache::apply(const Victims& plan, Workers* workers) {
  prepare({.drop = plan.drop}).commit(workers);
}

bool Cache::defragment(int reserve, Workers* workers, TableRange tables) {
  prepare_defragment(reserve, tables).commit(workers);
  return std::ranges::any_of(moves_, [](const auto& moves) { return !moves.empty(); });
}

void Cache::shrink(TableRange tables) {
  assert(!pending_.open);
  for (int t = tables.first; t < std::min(tables.last, this->tables()); ++t) {
    table(t).shrink();
    std::vector<Move>().swap(moves_[at(t)]);
    if (options_.pages) for_each_head_of(t, [&](int head) { blocks_of(head).shrink_to_fit(); });
  }
  refresh_views();
}

void Cache::insert(int count) {
  prepare({.insert = count}).commit();
}

void Cache::undo(int count) {
  prepare({.reject = count}).commit();
}

void Cache::drop(Position first, Position last) {
  prepare({.drop_range = {first, last}}).commit();
}

void Cache::shift(Position first, Position last, Position by) {
  prepare({.shift_range = {first, last}, .shift_by = by}).commit();
}

void Cache::set_next(Position position) {
  assert(position >= next());
  if (position > next()) prepare({.at = position}).commit();
}

}  // namespace palimpsest
