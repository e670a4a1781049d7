// Caches that share pages: copy-on-write. A storage is copied as a whole.
#include <algorithm>
#include <cassert>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/relocate_rows.h"

namespace palimpsest {
namespace {

// Inserts the tokens of `like`, which has evicted none, into an empty table of another kind.
void insert_all(SlotTable& table, const SlotTable& like, bool scores) {
  const int last = static_cast<int>(like.inserted().size());
  table.insert(like.occupied() - last);
  table.insert(last);
  if (table.mapped_pages() > like.mapped_pages())
    table.release_empty_pages(0);  // spare slots are mapped by the next insert
  if (!scores) return;
  assert(like.score().size() >= table.score().size());
  std::copy_n(like.score().begin(), table.score().size(), table.score().begin());
  assert(like.columns() == table.columns());
  for (int c = 0; c < table.columns(); ++c)
    std::copy_n(like.column(c).begin(), table.score().size(), table.column(c).begin());
}

}  // namespace

void Cache::share(Cache& other) {
  assert(this != &other && options_.pages == other.options_.pages && pool_ == other.pool_);
  assert(!pending_.open && !other.pending_.open && (options_.pages || (storage_ && other.storage_)));
  const bool alike = options_ == other.options_;
  assert(can_share(other));
  other.fetch_scores();
  // All allocations first.
  std::vector<SlotTable> tables(tables_.size(),
                                SlotTable(options_.page_size, options_.mechanism, options_.track_rank, options_.columns,
                                          options_.evicted_page, options_.original_until));
  std::vector<MergedTokens> merged(merged_.size(), MergedTokens(options_.columns));
  if (alike)
    tables = other.tables_, merged = other.merged_;
  else
    for (int head = 0, t = 0; head < heads(); ++head) {
      if (table_of(head) != t) continue;  // tables are numbered in the order of their first heads
      const SlotTable& like = other.table(other.table_of(head));
      const bool scores = !options_.shared && !other.options_.shared && options_.columns == other.options_.columns &&
                          traits(options_.mechanism).fits == traits(other.options_.mechanism).fits;
      if (like.occupied() == like.next())
        insert_all(tables[at(t)], like, scores);
      else
        tables[at(t)].copy_from(like, scores);
      ++t;
    }
  std::vector<std::vector<PageId>> blocks = other.blocks_;
  for (std::size_t h = 0; h < blocks.size(); ++h) blocks[h].resize(at(tables[at(table_of_[h])].pages()), kNoPage);
  std::vector<std::vector<bool>> shared, other_shared;
  const auto pages_of = [this](const SlotTable& table) { return options_.pages ? at(table.pages()) : 0; };
  const auto mapped_pages = [&](const std::vector<SlotTable>& tables, std::vector<std::vector<bool>>& shared) {
    int count = 0;
    for (const SlotTable& table : tables) {
      auto& pages = shared.emplace_back(pages_of(table), false);
      for (std::size_t page = 0; page < pages.size(); ++page) pages[page] = table.mapped(static_cast<int>(page));
      count += static_cast<int>(std::ranges::count(pages, true));
    }
    return count;
  };
  const int mapped = mapped_pages(tables, shared), other_mapped = mapped_pages(other.tables_, other_shared);

  clear();
  tables_.swap(tables);
  merged_.swap(merged);
  blocks_.swap(blocks);
  shared_pages_.swap(shared);
  other.shared_pages_.swap(other_shared);
  shared_page_count_ = mapped;
  other.shared_page_count_ = other_mapped;
  if (options_.head_floats == other.options_.head_floats)
    std::ranges::copy(other.head_statistics_, head_statistics_.begin());
  state_.set(other.state_.now());
  for (const auto& head : blocks_)
    for (const PageId page : head) {
      if (page == kNoPage) continue;
      pool_->share(page);
      held_ += pool_->bytes_of(page);
    }
  if (storage_ != nullptr) {
    try {
      storage_->copy_from(*other.storage_);
    } catch (...) {
      clear();
      throw;
    }
  }
  dropped_ = other.dropped_;
  key_moves_ = other.key_moves_;
  peak_ = std::max(peak_, held_);
  refresh_views();
}

// Whether a table has all tokens of its window.
bool Cache::has_whole_window(int t) const {
  const SlotTable& table = this->table(t);
  const Position first = window(t) == INT32_MAX ? 0 : std::max<Position>(0, table.next() - window(t) + 1);
  return std::ranges::count_if(table.position(), [&](Position p) { return p >= first; }) == table.next() - first;
}

bool Cache::nothing_evicted() const {
  return dropped_ == 0 && std::ranges::all_of(tables_, &SlotTable::as_inserted);
}

bool Cache::compatible_with(const CacheOptions& kind) const {
  if (nothing_evicted() && (kind.windows.empty() || next() < std::ranges::min(kind.windows))) return true;
  if (dropped_ != 0 || tables_.front().edited() || kind.mechanism != options_.mechanism ||
      kind.evicted_page != options_.evicted_page || kind.windows != options_.windows)
    return false;
  for (int t = 0; t < tables(); ++t)
    if (!has_whole_window(t) || (table(t).cut() && !table(t).as_inserted())) return false;
  return true;
}

std::unique_ptr<Cache> Cache::fork() {
  auto copy = std::make_unique<Cache>(options_, pool_);
  if (storage_ != nullptr) copy->attach(storage_->make_empty());
  copy->share(*this);
  return copy;
}

std::vector<PageId> Cache::pages() const {
  std::vector<PageId> all;
  for (const auto& blocks : blocks_)
    for (const PageId page : blocks)
      if (page != kNoPage) all.push_back(page);
  return all;
}

void Cache::clear_shared(int t, int page) noexcept {
  auto& shared = shared_pages_[at(t)];
  if (at(page) >= shared.size() || !shared[at(page)]) return;
  shared[at(page)] = false;
  --shared_page_count_;
}

// Either all heads of a table share a page, or none.
void Cache::make_exclusive(int t, int page) {
  if (at(page) >= shared_pages_[at(t)].size() || !shared_pages_[at(t)][at(page)]) return;
  const bool tokens = table(t).occupied_in_page(page) > 0;
  for_each_head_of(t, [&](int head) {
    PageId& own = blocks_of(head)[at(page)];
    own = pool_->make_exclusive(own, tokens);
  });
  clear_shared(t, page);
}

void Cache::copy_rows(const Cache& like, PositionRange range) {
  assert(options_.pages && like.options_.pages && !pending_.open);
  if (range.empty()) return;
  std::vector<int> from, to;
  std::vector<Move> moves;
  const SlotTable* listed = nullptr;  // in `from`
  for (int head = 0; head < heads(); ++head) {
    const SlotTable &source = like.table(like.table_of(head)), &target = table(table_of(head));
    if (listed != &source) from.clear(), source.append_slots(range, from);
    listed = &source;
    to.clear(), moves.clear();
    target.append_slots(range, to);
    for (auto old = from.begin(); const int slot : to) {  // both oldest first
      while (old != from.end() && source.position(*old) < target.position(slot)) ++old;
      if (old != from.end() && source.position(*old) == target.position(slot)) moves.push_back({*old, slot});
    }
    const int shared = shared_page_count_;
    for (const Move& move : moves) make_exclusive(table_of(head), move.to / options_.page_size);
    if (shared_page_count_ != shared) refresh_views();
    relocate_rows(view(options_.geometry.layer_of(head)), like.head(head).page, this->head(head).page, moves);
  }
}

void Cache::make_exclusive() {
  if (shared_page_count_ == 0) return;
  for (int t = 0; t < tables(); ++t)
    for (int page = 0; page < table(t).pages(); ++page) make_exclusive(t, page);
  refresh_views();
}

}  // namespace palimpsest
