// Caches that share pages, and copy them before they write.
#include <algorithm>
#include <cassert>

#include "palimpsest/cache/cache.h"

namespace palimpsest {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// What `like`, whole, would be in a table of its own kind.
void take_in(SlotTable& table, const SlotTable& like, bool scores) {
  const int last = static_cast<int>(like.fresh().size());
  table.insert(like.live() - last);
  table.insert(last);
  if (!scores) return;
  assert(like.score().size() >= table.score().size());
  std::copy_n(like.score().begin(), table.score().size(), table.score().begin());
  assert(like.columns() == table.columns());
  for (int c = 0; c < table.columns(); ++c)
    std::copy_n(like.column(c).begin(), table.score().size(), table.column(c).begin());
}

}  // namespace

void Cache::share(Cache& other) {
  assert(this != &other && options_.pages && pool_ == other.pool_);
  const bool alike = options_ == other.options_;
  assert(alike || other.whole());
  clear();
  if (alike)
    tables_ = other.tables_, merged_ = other.merged_;
  else
    for (int t = 0; t < tables(); ++t)
      take_in(tables_[at(t)], other.table(other.options_.shared ? 0 : t),
              tables() > 1 && other.tables() == tables() && options_.columns == other.options_.columns);
  if (options_.head_floats == other.options_.head_floats) of_heads_ = other.of_heads_;
  for (std::size_t h = 0; h < blocks_.size(); ++h) {
    blocks_[h] = other.blocks_[h];
    blocks_[h].resize(at(tables_[options_.shared ? 0 : h].pages()));
    for (std::byte* page : blocks_[h]) {
      if (page == nullptr) continue;
      pool_->share(page);
      ++pages_held_;
    }
  }
  dropped_ = other.dropped_;
  peak_ = std::max(peak_, pages_held_);
  for (Cache* each : {this, &other}) {
    each->lent_pages_ = 0;
    for (int t = 0; t < each->tables(); ++t) {
      const SlotTable& table = each->table(t);
      each->lent_[at(t)].assign(at(table.pages()), false);
      for (int page = 0; page < table.pages(); ++page) each->lent_[at(t)][at(page)] = table.mapped(page);
      each->lent_pages_ += table.mapped_pages();
    }
  }
  refresh_views();
}

std::unique_ptr<Cache> Cache::fork() {
  auto copy = std::make_unique<Cache>(options_, pool_);
  copy->share(*this);
  return copy;
}

std::vector<const std::byte*> Cache::pages() const {
  std::vector<const std::byte*> all;
  for (const auto& blocks : blocks_)
    for (const std::byte* page : blocks)
      if (page != nullptr) all.push_back(page);
  return all;
}

void Cache::forget_lent(int t, int page) {
  auto& lent = lent_[at(t)];
  if (at(page) >= lent.size() || !lent[at(page)]) return;
  lent[at(page)] = false;
  --lent_pages_;
}

// All heads of a table share a page or none does.
void Cache::own(int t, int page) {
  if (at(page) >= lent_[at(t)].size() || !lent_[at(t)][at(page)]) return;
  const bool tokens = table(t).live_in_page(page) > 0;
  for_each_head_of(t,
                   [&](std::vector<std::byte*>& blocks) { blocks[at(page)] = pool_->own(blocks[at(page)], tokens); });
  forget_lent(t, page);
}

void Cache::own_all() {
  if (lent_pages_ == 0) return;
  for (int t = 0; t < tables(); ++t)
    for (int page = 0; page < table(t).pages(); ++page) own(t, page);
  refresh_views();
}

// Of the moves that are about to be carried out. Gather writes to new pages only.
void Cache::own_targets() {
  for (int t = 0; t < tables(); ++t) {
    if (options_.mechanism == Mechanism::kGather) {
      if (moves(t).empty()) continue;
      for (std::size_t page = 0; page < lent_[at(t)].size(); ++page) forget_lent(t, static_cast<int>(page));
    } else {
      for (const Move& move : moves(t))
        if (move.from != move.to) own(t, move.to / options_.page_size);
    }
  }
}

// Of insert(count): before anything changes, because there may be no memory for a copy.
void Cache::own_next(int count) {
  for (int t = 0; t < tables(); ++t) {
    const int free = std::min(count, table(t).free_slots());
    for (int i = 0; i < free; ++i) own(t, table(t).next_slot(i) / options_.page_size);
  }
}

}  // namespace palimpsest
