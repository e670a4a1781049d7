#include "palimpsest/cache/cache.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/cache/carry.h"
#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

LayerView shape_of(const CacheOptions& o) {
  return {.head = nullptr,
          .kv_heads = o.kv_heads,
          .head_dim = o.head_dim,
          .value_dim = o.value_dim,
          .page_size = o.page_size,
          .type = o.type,
          .rotated_half = o.rotated_half};
}

void check(const CacheOptions& o) {
  if (o.layers < 1 || o.kv_heads < 1 || o.head_dim < 1 || o.value_dim < 1)
    fail("a cache of {} layers x {} KV heads, dimensions {} and {}: all must be at least 1", o.layers, o.kv_heads,
         o.head_dim, o.value_dim);
  if (o.type == CacheType::kQ8_0 && (o.head_dim % kScaled != 0 || o.value_dim % kScaled != 0))
    fail("cache type q8_0 needs heads of a multiple of {} dimensions, not {} and {}: use f16", kScaled, o.head_dim,
         o.value_dim);
  if (o.type == CacheType::kQ8_0 && o.rotated_half)
    fail("cache type q8_0 has no rotated halves beside its keys: use rerotate=fused");
  if (o.page_size < kTile || o.page_size % kTile != 0 || o.page_size > (1 << 24))
    fail("page size {}: must be a multiple of {}, at most {}", o.page_size, kTile, 1 << 24);
}

}  // namespace

Cache::Cache(const CacheOptions& options, std::shared_ptr<PagePool> pool)
    : options_((check(options), options)), pool_(std::move(pool)) {
  const std::size_t bytes = page_bytes(shape_of(options));
  if (options.pages && pool_ == nullptr) pool_ = std::make_shared<PagePool>(bytes);
  assert(!options.pages || pool_->page_bytes() == bytes);
  const auto count = static_cast<std::size_t>(options.shared ? 1 : heads());
  tables_.assign(count, SlotTable(options.page_size, options.mechanism, options.track_rank, options.columns));
  if (options.mechanism == Mechanism::kMerge) {
    assert(!options.shared && "heads merge each for itself");
    merged_.assign(count, MergedTokens(options.columns));
    merged_views_.resize(count);
  }
  slot_views_.resize(count);
  moves_.resize(count);
  lent_.resize(count);
  head_views_.resize(static_cast<std::size_t>(heads()));
  assert(options.head_floats >= 0);
  of_heads_.resize(head_views_.size() * static_cast<std::size_t>(options.head_floats));
  if (options.pages) blocks_.resize(static_cast<std::size_t>(heads()));
  refresh_views();
}

Cache::~Cache() {
  for (auto& blocks : blocks_)
    for (auto& page : blocks) give_back(page);
}

std::span<float> Cache::of_head(int layer, int head) {
  const auto floats = static_cast<std::size_t>(options_.head_floats);
  return std::span(of_heads_).subspan(static_cast<std::size_t>(layer * options_.kv_heads + head) * floats, floats);
}

std::span<const float> Cache::of_head(int layer, int head) const {
  return const_cast<Cache*>(this)->of_head(layer, head);
}

void Cache::give_back(std::byte*& page) {
  if (page == nullptr) return;
  pool_->give_back(page);
  page = nullptr;
  --pages_held_;
}

int Cache::live() const {
  return std::ranges::max_element(tables_, {}, &SlotTable::live)->live();
}

std::byte* Cache::take() {
  ++pages_held_;
  peak_ = std::max(peak_, pages_held_);
  return pool_->take();
}

// Heads are independent of each other: each moves its own rows.
void Cache::carry_bytes(Workers* workers) {
  const LayerView shape = shape_of(options_);
  const bool gather = options_.mechanism == Mechanism::kGather;
  if (lent_pages_ > 0) own_targets();
  std::vector<std::vector<std::byte*>> copies(gather ? blocks_.size() : 0);
  for (std::size_t h = 0; h < copies.size(); ++h) {
    if (moves_[options_.shared ? 0 : h].empty()) continue;
    for (std::size_t page = 0; page < blocks_[h].size(); ++page) copies[h].push_back(take());
  }
  const auto carry_head = [&](int head) {
    const auto h = static_cast<std::size_t>(head);
    const auto& moves = moves_[options_.shared ? 0 : h];
    if (moves.empty()) return;
    carry(shape, blocks_[h].data(), (gather ? copies : blocks_)[h].data(), moves);
  };
  if (workers != nullptr)
    workers->run(heads(), carry_head);
  else
    for (int head = 0; head < heads(); ++head) carry_head(head);
  for (std::size_t h = 0; h < copies.size(); ++h) {
    if (copies[h].empty()) continue;
    blocks_[h].swap(copies[h]);
    for (auto& page : copies[h]) give_back(page);
  }
}

void Cache::apply(const Plan& plan, Workers* workers) {
  assert(plan.drop.empty() || plan.drop.size() == tables_.size());
  for (auto& moves : moves_) moves.clear();
  bool dropped = false, moved = false;
  for (std::size_t t = 0; t < plan.drop.size(); ++t) {
    const auto& victims = plan.drop[t];
    if (victims.empty()) continue;
    tables_[t].drop(victims, moves_[t]);
    dropped = true;
    moved = moved || !moves_[t].empty();
    if (storage_ != nullptr && !moves_[t].empty()) storage_->moved(static_cast<int>(t), moves_[t]);
    dropped_ += static_cast<long long>(victims.size());
  }
  if (!dropped) return;
  if (moved && options_.pages) carry_bytes(workers);
  for (std::size_t t = 0; t < plan.drop.size(); ++t) {
    if (!plan.drop[t].empty()) trim(static_cast<int>(t), static_cast<int>(plan.drop[t].size()));
  }
  refresh_views();
}

void Cache::trim(int t, int reserve) {
  const auto unmapped = table(t).trim(reserve);
  if (unmapped.empty()) return;
  for_each_head_of(t, [&](std::vector<std::byte*>& blocks) {
    for (const int page : unmapped) give_back(blocks[static_cast<std::size_t>(page)]);
    blocks.resize(static_cast<std::size_t>(table(t).pages()));
  });
  for (const int page : unmapped) forget_lent(t, page);
}

bool Cache::gather_up(int reserve, Workers* workers) {
  bool moved = false;
  for (int t = 0; t < tables(); ++t) {
    auto& moves = moves_[static_cast<std::size_t>(t)];
    table(t).gather_up(reserve, moves);
    if (moves.empty()) continue;
    moved = true;
    if (storage_ != nullptr) storage_->moved(t, moves);
    if (MergedTokens* const tokens = merged(t)) tokens->moved(moves);
  }
  if (moved && options_.pages) carry_bytes(workers);
  for (int t = 0; t < tables(); ++t) {
    trim(t, reserve);
    if (MergedTokens* const tokens = merged(t)) tokens->lay(table(t));
  }
  refresh_views();
  return moved;
}

void Cache::insert(int count) {
  if (lent_pages_ > 0) own_next(count);
  if (options_.pages) {  // all memory first: a failure leaves everything as it was
    std::size_t pages = 0;
    for (const auto& table : tables_) pages += static_cast<std::size_t>(table.pages_to_map(count));
    pool_->reserve(options_.shared ? pages * blocks_.size() : pages);
  }
  for (int t = 0; t < tables(); ++t) {
    const auto mapped = table(t).insert(count);
    for_each_head_of(t, [&](std::vector<std::byte*>& blocks) {
      blocks.resize(static_cast<std::size_t>(table(t).pages()), nullptr);
      for (const int page : mapped) blocks[static_cast<std::size_t>(page)] = take();
    });
    if (MergedTokens* const tokens = merged(t); tokens != nullptr && !mapped.empty()) tokens->lay(table(t));
  }
  refresh_views();
}

void Cache::undo(int count) {
  for (auto& table : tables_) table.undo(count);
  refresh_views();
}

void Cache::resume_at(Position position) {
  for (auto& table : tables_) table.resume_at(position);
}

void Cache::clear() {
  for (auto& blocks : blocks_) {
    for (auto& page : blocks) give_back(page);
    blocks.clear();
  }
  for (auto& table : tables_) table.clear();
  for (auto& merged : merged_) merged.clear();
  for (auto& moves : moves_) moves.clear();
  for (auto& lent : lent_) lent.clear();
  std::ranges::fill(of_heads_, 0.0F);
  lent_pages_ = 0;
  if (storage_ != nullptr) storage_->cleared();
  refresh_views();
}

void Cache::attach(std::unique_ptr<CacheStorage> storage) {
  assert(!options_.pages);
  storage_ = std::move(storage);
}

void Cache::refresh_views() {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    slot_views_[t] = tables_[t].view();
    if (merged_.empty() || merged_[t].tokens().empty()) continue;
    merged_views_[t] = merged_[t].view();
    slot_views_[t].merged = &merged_views_[t];
  }
  for (std::size_t h = 0; h < head_views_.size(); ++h)
    head_views_[h] = {.page = options_.pages ? blocks_[h].data() : nullptr,
                      .slots = &slot_views_[options_.shared ? 0 : h]};
}

LayerView Cache::view(int layer) const {
  LayerView view = shape_of(options_);
  view.head = head_views_.data() + static_cast<std::ptrdiff_t>(layer) * options_.kv_heads;
  return view;
}

std::size_t Cache::bytes_in_use() const {
  if (storage_ != nullptr) return storage_->bytes_in_use();
  return pages_held_ * page_bytes(shape_of(options_));
}

std::size_t Cache::bytes_peak() const {
  if (storage_ != nullptr) return storage_->bytes_peak();
  return peak_ * page_bytes(shape_of(options_));
}

std::size_t Cache::bytes_tables() const {
  std::size_t bytes = of_heads_.size() * sizeof(float);
  for (const auto& table : tables_) bytes += table.bytes();
  for (const auto& blocks : blocks_) bytes += blocks.size() * sizeof(std::byte*);
  for (const auto& merged : merged_) bytes += merged.bytes();
  return bytes;
}

double Cache::slots_per_token() const {
  long long slots = 0, tokens = 0;
  for (const auto& table : tables_) {
    slots += static_cast<long long>(table.mapped_pages()) * table.page_size();
    tokens += table.live();
  }
  return tokens == 0 ? 0 : static_cast<double>(slots) / static_cast<double>(tokens);
}

}  // namespace palimpsest
