#include "palimpsest/graph/device/portable_storage.h"

#include <ggml-alloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {

int rotated_sinks(const CacheOptions& cache, const AttentionRule& rule) {
  const bool rounded = !kv_format(cache.geometry.layer(0).key_type).elementwise();  // once more in each step
  const bool on_write = rule.rotation == Rotation::kOnWrite && !rule.rotated_at_rank;
  return rule.two_query && on_write && !rounded && rule.sinks <= kStorageSlots ? rule.sinks : 0;
}

PortableStorage::PortableStorage(const CacheOptions& cache, StoragePool& pool, bool flash, std::vector<int> paired,
                                 int sinks)
    : shape_(cache),
      pool_(pool),
      backends_(pool.backends()),
      kind_{.geometry = cache.geometry,
            .values_in_rows = flash || !kv_format(cache.geometry.layer(0).value_type).elementwise(),
            .sinks = sinks},
      flash_(flash),
      paired_(std::move(paired)) {
  paired_.resize(static_cast<std::size_t>(cache.geometry.layers()));
  keeps_halves_ = !kv_format(cache.geometry.layer(0).key_type).elementwise() &&
                  std::ranges::any_of(paired_, [](int dims) { return dims > 0; });
  if (keeps_halves_) std::ranges::fill(paired_, 0);
  assert(!cache.pages);
  origin_.resize(cache.shared ? 1 : static_cast<std::size_t>(cache.geometry.heads()));
  const LayerGeometry& g = cache.geometry.layer(0);
  std::set<ggml_backend_t> all;
  for (int i = 0; i < cache.geometry.layers(); ++i) all.insert(backends_.of_layer(i));
  for (ggml_backend_t backend : all) {
    check_device(backend, g.key_type);
    if (g.value_type != g.key_type) check_device(backend, g.value_type);
  }
}

PortableStorage::~PortableStorage() {
  const std::lock_guard lock(backends_.mutex());
  seat_.release();
}

void PortableStorage::check_device(ggml_backend_t backend, CacheType stored) const {
  const ggml_context_ptr context(ggml_init({16 * ggml_tensor_overhead(), nullptr, true}));
  ggml_context* c = context.get();
  const int width = shape_.geometry.max_key_width();
  const ggml_type type = ggml_type_of(stored);
  ggml_tensor* keys = ggml_new_tensor_3d(c, type, width, kStorageSlots, shape_.geometry.max_kv_heads());
  ggml_tensor* rows = ggml_new_tensor_3d(c, GGML_TYPE_F32, width, 1, shape_.geometry.max_kv_heads());
  ggml_tensor* ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, 1, 1);
  ggml_tensor* part = ggml_view_3d(c, keys, width, kStorageSlots / 2, keys->ne[2], keys->nb[1], keys->nb[2], 0);
  for (const ggml_tensor* op : {ggml_set_rows(c, keys, rows, ids), ggml_cast(c, part, GGML_TYPE_F32),
                                ggml_cont(c, part), ggml_cpy(c, ggml_cont(c, part), part)})
    if (!ggml_backend_supports_op(backend, op))
      fail("device {} cannot keep a cache of {} (no {} for it); use another --cache-type or --device",
           ggml_backend_name(backend), ggml_type_name(type), ggml_op_desc(op));
}

void PortableStorage::reserve(int slots) {
  if (seat_ && !seat_->usable())
    fail("the cache was lost when device {} ran out of memory: start again", backends_.names());
  peak_ = bytes_peak();
  if (seat_)
    pool_.grow(seat_, slots);
  else
    seat_ = pool_.take(kind_, std::max(slots, 1));
}

void PortableStorage::rotate_sinks(bool rotate) {
  if (rotate && !sinks_saved_) pool_.copy_sinks(seat_, false);
  if (!rotate && sinks_rotated_) pool_.copy_sinks(seat_, true);
  sinks_saved_ = sinks_saved_ || rotate;
  sinks_rotated_ = rotate;
}

void PortableStorage::reserve_scores() {
  if (!seat_->reserve_scores())
    fail("no memory on device {} for the scores of {} slots; give a smaller --budget", backends_.names(), capacity());
}

// On the device scores are sums over a group's query heads.
void PortableStorage::write_scores(int table, std::span<const float> scores) {
  const int layer = shape_.geometry.layer_of(table);
  ggml_tensor* const all = seat_->scores(layer);
  const std::size_t lane = at(seat_.lane(layer) + shape_.geometry.kv_head_of(table));
  std::vector<float> sums(scores.begin(), scores.end());
  for (float& sum : sums) sum *= static_cast<float>(shape_.geometry.layer(layer).group());
  ggml_backend_tensor_set(all, sums.data(), lane * all->nb[2], scores.size_bytes());
  has_scores_ = true;
}

void PortableStorage::read_scores(int table, std::span<float> scores) {
  const std::lock_guard lock(backends_.mutex());
  const int layer = shape_.geometry.layer_of(table);
  ggml_tensor* const all = seat_->scores(layer);
  const std::size_t lane = at(seat_.lane(layer) + shape_.geometry.kv_head_of(table));
  ggml_backend_tensor_get(all, scores.data(), lane * all->nb[2], scores.size_bytes());
  for (float& sum : scores) sum /= static_cast<float>(shape_.geometry.layer(layer).group());
}

void PortableStorage::reserve_moves(int table, int slots) {
  origin_[static_cast<std::size_t>(table)].reserve(static_cast<std::size_t>(slots));
}

void PortableStorage::on_moves(int table, std::span<const Move> moves) {
  std::vector<int>& origin = origin_[static_cast<std::size_t>(table)];
  for (const Move& move : moves) {
    for (int slot = static_cast<int>(origin.size()); slot <= std::max(move.from, move.to); ++slot)
      origin.push_back(slot);
    origin[move.to] = origin[move.from];
  }
  any_moved_ = true;
}

void PortableStorage::on_cleared() {
  const std::lock_guard lock(backends_.mutex());
  peak_ = bytes_peak();
  seat_.release();
  for (auto& origin : origin_) origin.clear();
  any_moved_ = has_scores_ = sinks_saved_ = sinks_rotated_ = false;
}

std::vector<PortableStorage::Run> PortableStorage::runs_of(int table) const {
  std::vector<Run> runs;
  const std::vector<int>& origin = origin_[static_cast<std::size_t>(table)];
  for (int to = 0; to < static_cast<int>(origin.size()); ++to) {
    const int from = origin[to];
    if (from == to) continue;
    if (!runs.empty() && runs.back().to + runs.back().count == to && runs.back().from + runs.back().count == from)
      ++runs.back().count;
    else
      runs.push_back({from, to, 1});
  }
  return runs;
}

// Moves are downwards and in order, so a run never reads what an earlier one wrote.
void PortableStorage::apply_moves() {
  if (!any_moved_) return;
  std::vector<std::vector<Run>> runs;  // of a layer's tables
  for (int i = 0; i < shape_.geometry.layers(); ++i) {
    const LayerGeometry& g = shape_.geometry.layer(i);
    if (runs.empty() || !shape_.shared) {
      runs.clear();
      const int first = shape_.shared ? 0 : shape_.geometry.first_head(i);
      for (int t = first; t < first + (shape_.shared ? 1 : g.kv_heads); ++t) runs.push_back(runs_of(t));
    }
    std::size_t count = 0;
    for (const auto& of_table : runs) count += of_table.size();
    if (g.kv_heads == 0) continue;
    if (count == 0) continue;
    ggml_tensor *k = keys(i), *v = values(i);
    Copies copies(backends_.of_layer(i), pool_.copy_memory(backends_.of_layer(i)), 2 * count);
    const std::int64_t together = shape_.shared ? g.kv_heads : 1;
    for (std::size_t h = 0; h < runs.size(); ++h)
      for (const Run& run : runs[h]) {
        const std::size_t lane = at(seat_.lane(i)) + h, slot = v->nb[values_in_rows() ? 1 : 0];
        constexpr bool kOverlap = true;
        copies.add(k, lane * k->nb[2] + run.from * k->nb[1], k, lane * k->nb[2] + run.to * k->nb[1],
                   {g.key_width, run.count, together}, kOverlap);
        copies.add(v, lane * v->nb[2] + run.from * slot, v, lane * v->nb[2] + run.to * slot,
                   values_in_rows() ? Box{g.value_width, run.count, together} : Box{run.count, g.value_width, together},
                   kOverlap);
      }
    copies.run();
  }
  for (auto& origin : origin_) origin.clear();
  any_moved_ = false;
}

namespace {

// Rows of a head as f32, from and to its part of a tensor.
void read_part(ggml_tensor* t, int head, std::vector<std::byte>& bytes, std::span<float> rows) {
  bytes.resize(ggml_row_size(t->type, static_cast<std::int64_t>(rows.size())));
  ggml_backend_tensor_get(t, bytes.data(), static_cast<std::size_t>(head) * t->nb[2], bytes.size());
  if (t->type == GGML_TYPE_F32)
    std::memcpy(rows.data(), bytes.data(), bytes.size());
  else
    ggml_get_type_traits(t->type)->to_float(bytes.data(), rows.data(), static_cast<std::int64_t>(rows.size()));
}

void write_part(ggml_tensor* t, int head, std::vector<std::byte>& bytes, std::span<const float> rows) {
  bytes.resize(ggml_row_size(t->type, static_cast<std::int64_t>(rows.size())));
  const std::int64_t width = t->ne[0];
  ggml_quantize_chunk(t->type, rows.data(), bytes.data(), 0, static_cast<std::int64_t>(rows.size()) / width, width,
                      nullptr);
  ggml_backend_tensor_set(t, bytes.data(), static_cast<std::size_t>(head) * t->nb[2], bytes.size());
}

// Where dimension d of a key whose first `dims` are pairs of neighbours is stored.
std::size_t place_of(int d, int dims) {
  return static_cast<std::size_t>(d < dims ? d % 2 * dims / 2 + d / 2 : d);
}

}  // namespace

void PortableStorage::read_head(int head, int slots, std::span<float> keys, std::span<float> values) {
  const std::lock_guard lock(backends_.mutex());
  apply_moves();
  if (seat_) rotate_sinks(false);
  const int layer = shape_.geometry.layer_of(head), own = shape_.geometry.kv_head_of(head);
  const LayerGeometry& g = shape_.geometry.layer(layer);
  const std::size_t key = static_cast<std::size_t>(g.key_width), value = static_cast<std::size_t>(g.value_width),
                    held = static_cast<std::size_t>(capacity()), count = static_cast<std::size_t>(slots);
  std::vector<float> rows;
  if (!keys.empty()) {
    rows.resize(count * key);
    read_part(this->keys(layer), seat_.lane(layer) + own, bytes_of_head_, rows);
    for (std::size_t slot = 0; slot < count; ++slot)
      for (int d = 0; d < g.key_width; ++d)
        keys[slot * key + static_cast<std::size_t>(d)] =
            rows[slot * key + place_of(d, paired_[static_cast<std::size_t>(layer)])];
  }
  if (values.empty()) return;
  if (values_in_rows()) return read_part(this->values(layer), seat_.lane(layer) + own, bytes_of_head_, values);
  rows.resize(held * value);
  read_part(this->values(layer), seat_.lane(layer) + own, bytes_of_head_, rows);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (std::size_t d = 0; d < value; ++d) values[slot * value + d] = rows[d * held + slot];
}

void PortableStorage::write_head(int head, int slots, std::span<const float> keys, std::span<const float> values) {
  const std::lock_guard lock(backends_.mutex());
  reserve(slots);
  const int layer = shape_.geometry.layer_of(head), own = shape_.geometry.kv_head_of(head);
  const LayerGeometry& g = shape_.geometry.layer(layer);
  const std::size_t key = static_cast<std::size_t>(g.key_width), value = static_cast<std::size_t>(g.value_width),
                    held = static_cast<std::size_t>(capacity()), count = static_cast<std::size_t>(slots);
  std::vector<float> rows(count * key);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (int d = 0; d < g.key_width; ++d)
      rows[slot * key + place_of(d, paired_[static_cast<std::size_t>(layer)])] =
          keys[slot * key + static_cast<std::size_t>(d)];
  write_part(this->keys(layer), seat_.lane(layer) + own, bytes_of_head_, rows);
  if (values_in_rows()) return write_part(this->values(layer), seat_.lane(layer) + own, bytes_of_head_, values);
  rows.assign(held * value, 0.0F);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (std::size_t d = 0; d < value; ++d) rows[d * held + slot] = values[slot * value + d];
  write_part(this->values(layer), seat_.lane(layer) + own, bytes_of_head_, rows);
}

std::unique_ptr<CacheStorage> PortableStorage::make_empty() const {
  auto empty = std::make_unique<PortableStorage>(shape_, pool_, flash_, paired_, kind_.sinks);
  empty->keeps_halves_ = keeps_halves_;
  return empty;
}

void PortableStorage::copy_from(CacheStorage& other) {
  const std::lock_guard lock(backends_.mutex());
  auto& from = static_cast<PortableStorage&>(other);
  on_cleared();
  from.apply_moves();
  if (!from.seat_) return;
  from.rotate_sinks(false);
  reserve(from.seat_->needed(from.seat_.index()));
  if (kind_ == from.kind_) return pool_.copy(from.seat_, seat_);
  std::vector<float> keys, values;
  const int slots = std::min(capacity(), from.capacity());
  for (int head = 0; head < shape_.geometry.heads(); ++head) {
    const LayerGeometry& g = shape_.geometry.layer_geometry(head);
    keys.resize(at(slots) * at(g.key_width));
    values.resize(at(slots) * at(g.value_width));
    from.read_head(head, slots, keys, values);
    write_head(head, slots, keys, values);
  }
}

}  // namespace palimpsest
