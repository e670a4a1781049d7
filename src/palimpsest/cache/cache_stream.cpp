// Saves and loads a cache as bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <climits>
#include <cmath>
#include <optional>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/relocate_rows.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kTypes = 4, kPageSize = 5, kShared = 7;
constexpr std::int32_t kEdited = 1 << 8;   // flag in the number of `shared`: tables have ordinals
constexpr std::int32_t kHalves = 1 << 10;  // likewise: keys are in the order of CacheStorage::keeps_halves
constexpr std::int32_t kWindows = 1 << 9;  // likewise: heads have windows; `shared` then means one table per window
constexpr int kKeyMovesShift = 16;         // likewise: Cache::key_moves(), in 8 bits
constexpr auto kCannot = "the session cannot be saved: its cache has {}";
constexpr auto kMisfit = "a key or value that is not a number, or too large";

// The key type, plus (value type + 1) * 2^8 if the two differ.
std::int32_t number_of(CacheTypes types) {
  const auto key = static_cast<std::int32_t>(types.key), value = static_cast<std::int32_t>(types.value);
  return value == key ? key : key + ((value + 1) << 8);
}

std::optional<CacheTypes> types_of(std::int32_t number) {
  for (const CacheType key : kCacheTypes)
    for (const CacheType value : kCacheTypes)
      if (number_of({key, value}) == number) return CacheTypes(key, value);
  return std::nullopt;
}

// The number of `track_rank` is also that of `original_until`, doubled: 0 or 1 as before there was one.
// With uniform layers the first two numbers are layers and heads per layer. Else the second is -1, and the heads of
// each layer follow at the end. With heads of several widths, the third and the fourth number are -1, and the widths of
// each layer follow its heads.
std::vector<std::int32_t> kind_of(const CacheOptions& o) {
  const LayerGeometry& g = o.geometry.layer_geometry(0);
  std::vector<std::int32_t> kind = {o.geometry.layers(),
                                    o.geometry.is_uniform() ? g.kv_heads : -1,
                                    o.geometry.one_width() ? g.key_width : -1,
                                    o.geometry.one_width() ? g.value_width : -1,
                                    number_of({g.key_type, g.value_type}),
                                    o.page_size,
                                    static_cast<std::int32_t>(o.mechanism),
                                    std::int32_t{o.shared},
                                    std::int32_t{o.track_rank} | o.original_until << 1,
                                    std::int32_t{o.rotated_half}};
  for (int i = 0; !o.geometry.is_uniform() && i < o.geometry.layers(); ++i) {
    const LayerGeometry& l = o.geometry.layer(i);
    kind.push_back(l.kv_heads);
    if (!o.geometry.one_width()) kind.insert(kind.end(), {l.key_width, l.value_width});
  }
  return kind;
}

}  // namespace

void Cache::save(ByteWriter& out) const {
  assert(options_.pages || storage_ != nullptr);
  // Sums of scores, merged rows and rotated keys may have overflowed.
  if (const char* const found = fault()) fail(kCannot, found);
  const CacheOptions& o = options_;
  auto kind = kind_of(o);
  if (tables_.front().edited()) kind[kShared] |= kEdited;
  if (!o.windows.empty()) kind[kShared] |= kWindows;
  if (storage_ != nullptr && storage_->keeps_halves()) kind[kShared] |= kHalves;
  kind[kShared] |= std::min(key_moves_, 255) << kKeyMovesShift;
  for (const std::int32_t each : kind) out.put(each);
  out.put(dropped_);
  for (const SlotTable& table : tables_) table.save(out);
  if (o.head_floats > 0) out.array(std::span<const float>(head_statistics_));
  if (o.state_floats > 0) out.array(state_.now());
  for (const MergedTokens& merged : merged_) merged.save(out);
  options_.pages ? save_pages(out) : save_storage(out);
}

void Cache::save_pages(ByteWriter& out) const {
  const CacheOptions& o = options_;
  std::vector<std::byte> zeros, copy;
  for (int head = 0; head < heads(); ++head) {
    const auto& blocks = blocks_[static_cast<std::size_t>(head)];
    const auto position = table(table_of(head)).position();
    const LayerView shape = view(o.geometry.layer_of(head));
    zeros.resize(page_bytes(shape));
    copy.resize(page_bytes(shape));
    for (std::size_t page = 0; page < blocks.size(); ++page) {
      if (blocks[page] == kNoPage) continue;
      std::memcpy(copy.data(), pool_->address(blocks[page]), copy.size());
      // Zero the empty slots: they may hold old bytes of another sequence.
      std::vector<Move> empty_slots;
      for (int slot = 0; slot < o.page_size; ++slot)
        if (position[page * static_cast<std::size_t>(o.page_size) + static_cast<std::size_t>(slot)] == kNoPosition)
          empty_slots.push_back({slot, slot});
      constexpr PageId kOnly = 0;
      if (!empty_slots.empty()) relocate_rows(shape, {&kOnly, zeros.data()}, {&kOnly, copy.data()}, empty_slots);
      if (!page_fits(shape, copy.data())) fail(kCannot, kMisfit);
      out.bytes(copy);
    }
  }
}

// As save_pages(): the pages that the slots' keys and values would be in.
void Cache::save_storage(ByteWriter& out) const {
  std::vector<float> keys, values;
  for (int head = 0; head < heads(); ++head) {
    const LayerView shape = view(options_.geometry.layer_of(head));
    const SlotTable& of_head = table(table_of(head));
    const auto slots = static_cast<std::size_t>(of_head.slots()),
               page_size = static_cast<std::size_t>(options_.page_size);
    const auto key = static_cast<std::size_t>(shape.head_dim), value = static_cast<std::size_t>(shape.value_dim);
    keys.assign(slots * key, 0);
    values.assign(slots * value, 0);
    if (of_head.occupied() > 0) storage_->read_head(head, of_head.slots(), keys, values);
    std::vector<std::byte> page(page_bytes(shape));
    for (std::size_t first = 0; first < slots; first += page_size) {
      if (!of_head.mapped(static_cast<int>(first / page_size))) continue;
      std::ranges::fill(page, std::byte{});
      for (std::size_t slot = first; slot < first + page_size; ++slot) {
        if (of_head.position(static_cast<int>(slot)) == kNoPosition) continue;
        store_key(shape, page.data(), static_cast<int>(slot - first), keys.data() + slot * key);
        store_value(shape, page.data(), static_cast<int>(slot - first), values.data() + slot * value);
      }
      if (!page_fits(shape, page.data())) fail(kCannot, kMisfit);
      out.bytes(page);
    }
  }
}

std::string Cache::mismatch(const CacheOptions& options, ByteReader& in) {
  Kind unused;
  return mismatch(options, in, unused);
}

std::string Cache::mismatch(const CacheOptions& options, ByteReader& in, Kind& saved) {
  const auto own = kind_of(options);
  auto kind = own;
  for (auto& each : kind) each = in.get<std::int32_t>();
  saved = {.edited = (kind[kShared] & kEdited) != 0,
           .windows = (kind[kShared] & kWindows) != 0,
           .halves = (kind[kShared] & kHalves) != 0,
           .key_moves = kind[kShared] >> kKeyMovesShift & 255};
  kind[kShared] &= ~(kEdited | kWindows | kHalves | 255 << kKeyMovesShift);
  if (saved.windows && options.windows.empty()) return "a cache whose layers kept other windows";
  if (kind == own) return {};
  const auto types = types_of(kind[kTypes]);
  if (kind[kTypes] != own[kTypes] && types) return flags_of(*types) + ": give that";
  if (kind[kPageSize] != own[kPageSize]) return fmt::format("--page-size {}: give that", kind[kPageSize]);
  return "a cache of another shape or method";
}

const char* Cache::fault() const {
  for (const SlotTable& table : tables_)
    if (const char* const found = table.fault()) return found;
  for (std::size_t t = 0; t < merged_.size(); ++t)
    if (const char* const found = merged_[t].fault(tables_[t])) return found;
  return fault_across_tables();
}

const char* Cache::fault_across_tables() const {
  if (dropped_ < 0 || dropped_ > (1LL << 60)) return "an impossible count of dropped tokens";
  for (const SlotTable& table : tables_)
    if (table.next() != tables_.front().next() || table.base() != tables_.front().base() ||
        table.tokens_read() != tables_.front().tokens_read())
      return "heads that read texts of different lengths";
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(head_statistics_, finite)) return "statistics of heads that are not numbers";
  if (!std::ranges::all_of(state_.now(), finite)) return "a recurrent state that is not of numbers";
  return nullptr;
}

void Cache::load(ByteReader& in) {
  try {
    load_tables(in);
    take_pages(INT_MAX);
    load_pages(in);
  } catch (...) {
    dropped_ = 0;
    clear();
    throw;
  }
}

void Cache::load_tables(ByteReader& in) {
  assert(options_.pages || storage_ != nullptr);
  clear();
  Kind kind;
  in.require(mismatch(options_, in, kind).empty(), "a cache of another shape, type, page size or method");
  if (kind.halves != (storage_ != nullptr && storage_->keeps_halves()))
    fail("keys of blocks, as in q8_0, were saved in the order of another device: go on there, or use --cache-type f16");
  dropped_ = in.get<long long>();
  key_moves_ = kind.key_moves;
  // Files of older versions have no windows and one table for all heads; the next step drops what is outside windows.
  const bool older = !kind.windows && !options_.windows.empty();
  if (older && !options_.shared) dropped_ = dropped_ / tables() * counted_tables_;
  if (older && options_.shared) {
    tables_.front().load(in, kind.edited);
    for (std::size_t t = 1; t < tables_.size(); ++t) tables_[t] = tables_.front();
  } else {
    for (SlotTable& table : tables_) table.load(in, kind.edited);
  }
  if (options_.head_floats > 0) {
    const std::size_t count = head_statistics_.size();
    head_statistics_ = in.array<float>();
    const bool same = head_statistics_.size() == count;
    head_statistics_.resize(count);
    in.require(same, "statistics of heads that do not fit");
  }
  if (options_.state_floats > 0) {
    const std::vector<float> state = in.array<float>();
    in.require(state.size() == options_.state_floats, "a recurrent state that does not fit");
    state_.set(state);
  }
  if (const char* const found = fault_across_tables()) in.damaged(found);
  for (std::size_t t = 0; t < merged_.size(); ++t) merged_[t].load(in, tables_[t]);
  for (std::size_t h = 0; h < blocks_.size(); ++h)
    blocks_[h].assign(static_cast<std::size_t>(tables_[static_cast<std::size_t>(table_of_[h])].pages()), kNoPage);
}

bool Cache::take_pages(int max) {
  for (std::size_t h = 0; h < blocks_.size(); ++h) {
    const SlotTable& table = tables_[static_cast<std::size_t>(table_of_[h])];
    for (int page = 0; page < table.pages(); ++page) {
      PageId& to = blocks_[h][static_cast<std::size_t>(page)];
      if (to != kNoPage || !table.mapped(page)) continue;
      if (max-- <= 0) return false;
      to = take(static_cast<int>(h));
    }
  }
  return true;
}

void Cache::load_pages(ByteReader& in) {
  if (!options_.pages) return load_storage(in);
  for (int head = 0; head < heads(); ++head) {
    const LayerView shape = view(options_.geometry.layer_of(head));
    for (const PageId page : blocks_[static_cast<std::size_t>(head)]) {
      if (page == kNoPage) continue;
      const auto bytes = in.bytes(page_bytes(shape));
      in.require(page_fits(shape, bytes.data()), kMisfit);
      std::memcpy(pool_->address(page), bytes.data(), bytes.size());
    }
  }
  refresh_views();
}

void Cache::load_storage(ByteReader& in) {
  int most = 0;  // one growth for all heads
  for (const SlotTable& each : tables_) most = std::max(most, each.slots());
  std::vector<float> keys, values;
  for (int head = 0; head < heads(); ++head) {
    const LayerView shape = view(options_.geometry.layer_of(head));
    const SlotTable& of_head = table(table_of(head));
    const auto key = static_cast<std::size_t>(shape.head_dim), value = static_cast<std::size_t>(shape.value_dim);
    keys.assign(static_cast<std::size_t>(most) * key, 0);
    values.assign(static_cast<std::size_t>(most) * value, 0);
    for (int page = 0; page < of_head.pages(); ++page) {
      if (!of_head.mapped(page)) continue;
      const auto bytes = in.bytes(page_bytes(shape));
      in.require(page_fits(shape, bytes.data()), kMisfit);
      for (int offset = 0; offset < options_.page_size; ++offset) {
        const auto slot = static_cast<std::size_t>(page * options_.page_size + offset);
        load_key(shape, bytes.data(), offset, keys.data() + slot * key);
        load_value(shape, bytes.data(), offset, values.data() + slot * value);
      }
    }
    if (most > 0) storage_->write_head(head, most, keys, values);
  }
  refresh_views();
}

}  // namespace palimpsest
