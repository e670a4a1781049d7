#include "palimpsest/cache/cache.h"

#include <algorithm>
#include <cassert>
#include <ranges>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

LayerView shape_of(const CacheOptions& o, int layer) {
  const LayerGeometry& g = o.geometry.layer(layer);
  return {.head = nullptr,
          .kv_heads = g.kv_heads,
          .head_dim = g.key_width,
          .value_dim = g.value_width,
          .page_size = o.page_size,
          .key_type = g.key_type,
          .value_type = g.value_type,
          .rotated_half = o.rotated_half};
}

void check_width(const char* what, CacheType type, int width) {
  const KvFormat& format = kv_format(type);
  if (width % format.group != 0)
    fail("{} of cache type {} need heads of a multiple of {} dimensions, not {}: use f16", what, format.name,
         format.group, width);
}

void check(const CacheOptions& o) {
  if (o.geometry.heads() == 0) fail("a cache without KV heads: give a layer at least 1");
  const LayerGeometry& g = o.geometry.layer_geometry(0);
  for (int i = 0; i < o.geometry.layers(); ++i) {
    const LayerGeometry& l = o.geometry.layer(i);
    if (l.kv_heads == 0) continue;
    check_width("keys", g.key_type, l.key_width);
    check_width("values", g.value_type, l.value_width);
    if (l.key_type != g.key_type || l.value_type != g.value_type)
      fail("keys of all layers must be of one type, and values too");
  }
  if (const KvFormat& format = kv_format(g.key_type); !format.elementwise() && o.rotated_half)
    fail("cache type {} has no rotated halves beside its keys: use rerotate=fused", format.name);
  check_page_size(o.page_size);
  if (!o.windows.empty() && std::ranges::any_of(o.windows, [](std::int32_t window) { return window < 1; }))
    fail("a head that keeps a window of no position: give at least 1");
}

}  // namespace

void check_page_size(int page_size, std::string_view name) {
  if (page_size < kTile || page_size % kTile != 0 || page_size > (1 << 24))
    fail("{} {}: give a multiple of {}, at most {}", name, page_size, kTile, 1 << 24);
}

std::vector<int> tables_of(const CacheOptions& options) {
  std::vector<int> tables;
  std::vector<std::int32_t> windows;
  for (int head = 0; head < options.geometry.heads(); ++head) {
    const std::int32_t window = options.windows.empty() ? INT32_MAX : options.windows[static_cast<std::size_t>(head)];
    const auto known = options.shared ? std::ranges::find(windows, window) : windows.end();
    tables.push_back(static_cast<int>(known - windows.begin()));
    if (known == windows.end()) windows.push_back(window);
  }
  return tables;
}

std::vector<std::size_t> page_bytes_of_heads(const CacheOptions& options) {
  std::vector<std::size_t> bytes;
  for (int head = 0; head < options.geometry.heads(); ++head)
    bytes.push_back(page_bytes(shape_of(options, options.geometry.layer_of(head))));
  return bytes;
}

std::shared_ptr<PagePool> make_pool(const CacheOptions& options) {
  check(options);
  std::vector<std::size_t> sizes;
  for (const std::size_t bytes : page_bytes_of_heads(options))
    if (std::ranges::find(sizes, bytes) == sizes.end()) sizes.push_back(bytes);
  return std::make_shared<PagePool>(sizes);
}

Cache::Cache(const CacheOptions& options, std::shared_ptr<PagePool> pool)
    : options_((check(options), options)), pool_(std::move(pool)), state_(options.state_floats) {
  if (options.pages) {
    if (pool_ == nullptr) pool_ = make_pool(options);
    for (const std::size_t bytes : page_bytes_of_heads(options)) {
      int size = 0;
      while (pool_->page_bytes(size) != bytes) ++size;
      size_of_.push_back(size);
    }
    pending_.wanted.resize(pool_->sizes());
  }
  assert(options.windows.empty() || options.windows.size() == static_cast<std::size_t>(heads()));
  table_of_ = tables_of(options);
  const auto count = static_cast<std::size_t>(std::ranges::max(table_of_)) + 1;
  windows_.resize(count, INT32_MAX);
  for (std::size_t head = 0; head < options.windows.size(); ++head)
    windows_[static_cast<std::size_t>(table_of_[head])] = options.windows[head];
  some_unwindowed_ = std::ranges::find(windows_, INT32_MAX) != windows_.end();
  counted_tables_ = 0;
  for (int t = 0; t < static_cast<int>(count); ++t) counted_tables_ += counts_evictions(t) ? 1 : 0;
  pending_.mapped.resize(count);
  tables_.assign(count, SlotTable(options.page_size, options.mechanism, options.track_rank, options.columns,
                                  options.evicted_page, options.original_until));
  if (traits(options.mechanism).merges) {
    assert(!options.shared && "heads merge each for itself");
    merged_.assign(count, MergedTokens(options.columns));
    merged_views_.resize(count);
  }
  assert(!traits(options.mechanism).fits || (!options.shared && options.columns > 0));
  slot_views_.resize(count);
  moves_.resize(count);
  shared_pages_.resize(count);
  head_views_.resize(static_cast<std::size_t>(heads()));
  assert(options.head_floats >= 0);
  head_statistics_.resize(head_views_.size() * static_cast<std::size_t>(options.head_floats));
  if (options.pages) blocks_.resize(static_cast<std::size_t>(heads()));
  refresh_views();
}

Cache::~Cache() {
  assert(!pending_.open);
  for (auto& blocks : blocks_)
    for (auto& page : blocks) release(page);
}

std::span<float> Cache::head_statistics(int head) {
  const auto floats = static_cast<std::size_t>(options_.head_floats);
  return std::span(head_statistics_).subspan(static_cast<std::size_t>(head) * floats, floats);
}

std::span<const float> Cache::head_statistics(int head) const {
  return const_cast<Cache*>(this)->head_statistics(head);
}

void Cache::release(PageId& page) noexcept {
  if (page == kNoPage) return;
  held_ -= pool_->bytes_of(page);
  pool_->release(page);
  page = kNoPage;
}

int Cache::occupied() const {
  return std::ranges::max(tables_ | std::views::transform([](const SlotTable& t) { return t.occupied(); }));
}

int Cache::slots() const {
  return std::ranges::max(tables_ | std::views::transform([](const SlotTable& t) { return t.slots(); }));
}

PageId Cache::take(int head) {
  const PageId page = pool_->take(size_of_[static_cast<std::size_t>(head)]);
  held(page_bytes_of(head));
  return page;
}

void Cache::clear() noexcept {
  assert(!pending_.open);
  for (auto& blocks : blocks_) {
    for (auto& page : blocks) release(page);
    blocks.clear();
  }
  for (auto& table : tables_) table.clear();
  for (auto& merged : merged_) merged.clear();
  for (auto& moves : moves_) moves.clear();
  patches_.clear();
  for (auto& pages : shared_pages_) pages.clear();
  std::ranges::fill(head_statistics_, 0.0F);
  state_.clear();
  key_moves_ = 0;
  shared_page_count_ = 0;
  if (storage_ != nullptr) storage_->on_cleared();
  refresh_views();
}

void Cache::preview(std::span<const std::vector<SlotPatch>> patches) {
  assert(!pending_.open && patches.size() == tables_.size());
  patches_ = {patches.begin(), patches.end()};
  refresh_views();
}

void Cache::attach(std::unique_ptr<CacheStorage> storage) {
  assert(!options_.pages);
  storage_ = std::move(storage);
}

void Cache::fetch_scores() {
  if (storage_ == nullptr || !storage_->has_scores()) return;
  for (int t = 0; t < tables(); ++t) {
    const std::span<float> score = table(t).score();
    storage_->read_scores(t, score);
    for (int slot = 0; slot < table(t).slots(); ++slot)  // those of empty slots mean nothing
      if (table(t).position(slot) == kNoPosition) score[static_cast<std::size_t>(slot)] = 0;
  }
  storage_->drop_scores();
}

void Cache::refresh_views() noexcept {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    slot_views_[t] = tables_[t].view();
    if (!patches_.empty()) slot_views_[t].patches = patches_[t];
    if (traits(options_.mechanism).fits) slot_views_[t].bias = biases(static_cast<int>(t)).data();
    if (merged_.empty() || !merged_[t].attended()) continue;
    merged_views_[t] = merged_[t].view();
    slot_views_[t].merged = &merged_views_[t];
  }
  for (std::size_t h = 0; h < head_views_.size(); ++h)
    head_views_[h] = {.page = options_.pages ? pool_->table(blocks_[h]) : BlockTable{},
                      .slots = &slot_views_[static_cast<std::size_t>(table_of_[h])]};
}

LayerView Cache::view(int layer) const {
  LayerView view = shape_of(options_, layer);
  view.head = head_views_.data() + options_.geometry.first_head(layer);
  return view;
}

std::size_t Cache::bytes_in_use() const {
  if (storage_ != nullptr) return storage_->bytes_in_use();
  return held_;
}

std::size_t Cache::bytes_peak() const {
  if (storage_ != nullptr) return storage_->bytes_peak();
  return peak_;
}

std::size_t Cache::bytes_tables() const {
  std::size_t bytes = head_statistics_.size() * sizeof(float) + state_.bytes();
  for (const auto& table : tables_) bytes += table.bytes();
  for (const auto& blocks : blocks_) bytes += blocks.size() * sizeof(PageId);
  for (const auto& merged : merged_) bytes += merged.bytes();
  return bytes;
}

double Cache::slots_per_token() const {
  long long slots = 0, tokens = 0;
  for (const auto& table : tables_) {
    slots += static_cast<long long>(table.mapped_pages()) * table.page_size();
    tokens += table.occupied();
  }
  return tokens == 0 ? 0 : static_cast<double>(slots) / static_cast<double>(tokens);
}

}  // namespace palimpsest
