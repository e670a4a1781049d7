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

namespace {

using Box = std::array<std::int64_t, 3>;

// A one-time graph of copies on the device. Source and target of a copy may overlap; copies run in the order given.
class Copies {
 public:
  Copies(ggml_backend_t backend, ggml_gallocr_ptr& memory, std::size_t max)
      : backend_(backend),
        memory_(memory),
        context_(
            ggml_init({6 * max * ggml_tensor_overhead() + ggml_graph_overhead_custom(6 * max, false), nullptr, true})) {
    if (!context_) fail("no memory for {} copies", max);
    graph_ = ggml_new_graph_custom(context_.get(), 6 * max, false);
  }
  // Copies a box of `source` at byte offset `from` to offset `to` in `target`.
  void add(ggml_tensor* source, std::size_t from, ggml_tensor* target, std::size_t to, const Box& box) {
    ggml_tensor* aside = ggml_cont(context_.get(), view(source, from, box));
    ggml_build_forward_expand(graph_, ggml_cpy(context_.get(), aside, view(target, to, box)));
  }
  void run() {
    const std::size_t before = ggml_gallocr_get_buffer_size(memory_.get(), 0);
    const bool placed = ggml_gallocr_alloc_graph(memory_.get(), graph_);
    if (before > 0 && ggml_gallocr_get_buffer_size(memory_.get(), 0) != before) count_freed_buffer();
    if (!placed) memory_.reset();  // after a failure it would keep the address of a freed buffer
    if (!placed)
      fail("no memory on device {} to move keys and values; give a smaller --budget", ggml_backend_name(backend_));
    if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS)
      fail("device {} failed to move keys and values", ggml_backend_name(backend_));
  }

 private:
  ggml_tensor* view(ggml_tensor* t, std::size_t offset, const Box& box) {
    return ggml_view_3d(context_.get(), t, box[0], box[1], box[2], t->nb[1], t->nb[2], offset);
  }
  ggml_backend_t backend_;
  ggml_gallocr_ptr& memory_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;
};

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

ggml_type ggml_type_of(CacheType type) {
  for (const ggml_type each : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0})
    if (std::string_view(ggml_type_name(each)) == kv_format(type).name) return each;
  assert(false && "evict/legality.cpp refuses the others");
  return GGML_TYPE_F32;
}

PortableStorage::PortableStorage(const CacheOptions& cache, const Backends& backends, bool flash,
                                 std::vector<int> paired)
    : shape_(cache),
      backends_(backends),
      flash_(flash),
      values_in_rows_(flash || !kv_format(cache.geometry.layer(0).value_type).elementwise()),
      paired_(std::move(paired)) {
  paired_.resize(static_cast<std::size_t>(cache.geometry.layers()));
  keeps_halves_ = !kv_format(cache.geometry.layer(0).key_type).elementwise() &&
                  std::ranges::any_of(paired_, [](int dims) { return dims > 0; });
  if (keeps_halves_) std::ranges::fill(paired_, 0);
  assert(!cache.pages);
  origin_.resize(cache.shared ? 1 : static_cast<std::size_t>(cache.geometry.heads()));
  const LayerGeometry& g = cache.geometry.layer(0);
  std::set<ggml_backend_t> all;
  for (int i = 0; i < cache.geometry.layers(); ++i) all.insert(backends.of_layer(i));
  for (ggml_backend_t backend : all) {
    check_device(backend, g.key_type);
    if (g.value_type != g.key_type) check_device(backend, g.value_type);
  }
}

PortableStorage::~PortableStorage() {
  const std::lock_guard lock(backends_.mutex());
  layers_.clear();
  if (!memory_.empty()) count_freed_buffer();
}

ggml_gallocr_ptr& PortableStorage::memory_of(ggml_backend_t backend) {
  ggml_gallocr_ptr& memory = memory_[backend];
  if (!memory) memory.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
  if (!memory) fail("no memory for copies of keys and values");
  return memory;
}

void PortableStorage::check_device(ggml_backend_t backend, CacheType stored) const {
  const ggml_context_ptr context(ggml_init({16 * ggml_tensor_overhead(), nullptr, true}));
  ggml_context* c = context.get();
  const LayerGeometry& g = shape_.geometry.layer(0);
  const ggml_type type = ggml_type_of(stored);
  ggml_tensor* keys = ggml_new_tensor_3d(c, type, g.key_width, kStorageSlots, shape_.geometry.max_kv_heads());
  ggml_tensor* rows = ggml_new_tensor_3d(c, GGML_TYPE_F32, g.key_width, 1, shape_.geometry.max_kv_heads());
  ggml_tensor* ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, 1, 1);
  ggml_tensor* part = ggml_view_3d(c, keys, g.key_width, kStorageSlots / 2, keys->ne[2], keys->nb[1], keys->nb[2], 0);
  for (const ggml_tensor* op : {ggml_set_rows(c, keys, rows, ids), ggml_cast(c, part, GGML_TYPE_F32),
                                ggml_cont(c, part), ggml_cpy(c, ggml_cont(c, part), part)})
    if (!ggml_backend_supports_op(backend, op))
      fail("device {} cannot keep a cache of {} (no {} for it); use another --cache-type or --device",
           ggml_backend_name(backend), ggml_type_name(type), ggml_op_desc(op));
}

PortableStorage::Layer PortableStorage::make_layer(int index, int capacity) const {
  const LayerGeometry& g = shape_.geometry.layer(index);
  Layer layer;
  layer.context.reset(ggml_init({2 * ggml_tensor_overhead(), nullptr, true}));
  if (!layer.context) fail("no memory for a cache's tables");
  layer.keys = ggml_new_tensor_3d(layer.context.get(), ggml_type_of(g.key_type), g.key_width, capacity, g.kv_heads);
  const std::int64_t row = values_in_rows_ ? g.value_width : capacity,
                     rows = values_in_rows_ ? capacity : g.value_width;
  layer.values = ggml_new_tensor_3d(layer.context.get(), ggml_type_of(g.value_type), row, rows, g.kv_heads);
  layer.buffer.reset(ggml_backend_alloc_ctx_tensors(layer.context.get(), backends_.of_layer(index)));
  if (layer.buffer) ggml_backend_buffer_clear(layer.buffer.get(), 0);
  return layer;
}

// Grows layer by layer: at most one layer is in memory twice.
void PortableStorage::reserve(int slots) {
  if (lost_) fail("the cache was lost when device {} ran out of memory: start again", backends_.names());
  if (slots <= capacity_) return;
  const int capacity = (slots + kStorageSlots - 1) / kStorageSlots * kStorageSlots;
  lost_ = true;  // until all layers have grown
  layers_.resize(static_cast<std::size_t>(shape_.geometry.layers()));
  for (int i = 0; i < shape_.geometry.layers(); ++i) {
    const LayerGeometry& g = shape_.geometry.layer(i);
    if (g.kv_heads == 0) continue;
    Layer& old = layers_[static_cast<std::size_t>(i)];
    Layer layer = make_layer(i, capacity);
    if (!layer.buffer) {
      on_cleared();
      lost_ = true;
      fail("no memory on device {} for a cache of {} slots; give a smaller --budget, or a --cache-type of 2 bytes",
           ggml_backend_name(backends_.of_layer(i)), capacity);
    }
    if (old.buffer) {
      Copies copies(backends_.of_layer(i), memory_of(backends_.of_layer(i)), 2);
      copies.add(old.keys, 0, layer.keys, 0, {g.key_width, capacity_, g.kv_heads});
      const std::int64_t row = old.values->ne[0], rows = old.values->ne[1];
      copies.add(old.values, 0, layer.values, 0, {row, rows, g.kv_heads});
      copies.run();
    }
    bytes_ += ggml_backend_buffer_get_size(layer.buffer.get());
    peak_ = std::max(peak_, bytes_);
    for (const auto& freed : {std::cref(old.buffer), std::cref(old.scores_buffer)})
      if (freed.get()) bytes_ -= ggml_backend_buffer_get_size(freed.get().get());
    old = std::move(layer);
  }
  capacity_ = capacity;
  generation_ = next_generation();
  lost_ = false;
}

void PortableStorage::reserve_scores() {
  for (int i = 0; i < shape_.geometry.layers(); ++i) {
    Layer& layer = layers_[static_cast<std::size_t>(i)];
    const int heads = shape_.geometry.layer(i).kv_heads;
    if (heads == 0 || (layer.scores != nullptr && layer.scores->ne[0] == capacity_)) continue;
    layer.scores_buffer.reset();
    layer.context_of_scores.reset(ggml_init({ggml_tensor_overhead(), nullptr, true}));
    if (!layer.context_of_scores) fail("no memory for a cache's tables");
    layer.scores = ggml_new_tensor_2d(layer.context_of_scores.get(), GGML_TYPE_F32, capacity_, heads);
    layer.scores_buffer.reset(ggml_backend_alloc_ctx_tensors(layer.context_of_scores.get(), backends_.of_layer(i)));
    if (!layer.scores_buffer) {
      layer.scores = nullptr;
      fail("no memory on device {} for the scores of {} slots; give a smaller --budget",
           ggml_backend_name(backends_.of_layer(i)), capacity_);
    }
    ggml_backend_buffer_clear(layer.scores_buffer.get(), 0);
    bytes_ += ggml_backend_buffer_get_size(layer.scores_buffer.get());
    peak_ = std::max(peak_, bytes_);
    generation_ = next_generation();
  }
}

void PortableStorage::write_scores(int table, std::span<const float> scores) {
  ggml_tensor* const all = this->scores(shape_.geometry.layer_of(table));
  const auto own = static_cast<std::size_t>(shape_.geometry.kv_head_of(table));
  ggml_backend_tensor_set(all, scores.data(), own * all->nb[1], scores.size_bytes());
  has_scores_ = true;
}

void PortableStorage::read_scores(int table, std::span<float> scores) {
  const std::lock_guard lock(backends_.mutex());
  ggml_tensor* const all = this->scores(shape_.geometry.layer_of(table));
  const auto own = static_cast<std::size_t>(shape_.geometry.kv_head_of(table));
  ggml_backend_tensor_get(all, scores.data(), own * all->nb[1], scores.size_bytes());
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
  layers_.clear();
  for (auto& origin : origin_) origin.clear();
  any_moved_ = lost_ = has_scores_ = false;
  capacity_ = 0;
  bytes_ = 0;
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
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
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
    Copies copies(backends_.of_layer(i), memory_of(backends_.of_layer(i)), 2 * count);
    const std::int64_t together = shape_.shared ? g.kv_heads : 1;
    for (std::size_t h = 0; h < runs.size(); ++h)
      for (const Run& run : runs[h]) {
        copies.add(k, h * k->nb[2] + run.from * k->nb[1], k, h * k->nb[2] + run.to * k->nb[1],
                   {g.key_width, run.count, together});
        const std::size_t slot = v->nb[values_in_rows_ ? 1 : 0];
        copies.add(v, h * v->nb[2] + run.from * slot, v, h * v->nb[2] + run.to * slot,
                   values_in_rows_ ? Box{g.value_width, run.count, together} : Box{run.count, g.value_width, together});
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
  const int layer = shape_.geometry.layer_of(head), own = shape_.geometry.kv_head_of(head);
  const LayerGeometry& g = shape_.geometry.layer(layer);
  const std::size_t key = static_cast<std::size_t>(g.key_width), value = static_cast<std::size_t>(g.value_width),
                    capacity = static_cast<std::size_t>(capacity_), count = static_cast<std::size_t>(slots);
  std::vector<float> rows;
  if (!keys.empty()) {
    rows.resize(count * key);
    read_part(this->keys(layer), own, bytes_of_head_, rows);
    for (std::size_t slot = 0; slot < count; ++slot)
      for (int d = 0; d < g.key_width; ++d)
        keys[slot * key + static_cast<std::size_t>(d)] =
            rows[slot * key + place_of(d, paired_[static_cast<std::size_t>(layer)])];
  }
  if (values.empty()) return;
  if (values_in_rows_) return read_part(this->values(layer), own, bytes_of_head_, values);
  rows.resize(capacity * value);
  read_part(this->values(layer), own, bytes_of_head_, rows);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (std::size_t d = 0; d < value; ++d) values[slot * value + d] = rows[d * capacity + slot];
}

void PortableStorage::write_head(int head, int slots, std::span<const float> keys, std::span<const float> values) {
  const std::lock_guard lock(backends_.mutex());
  reserve(slots);
  const int layer = shape_.geometry.layer_of(head), own = shape_.geometry.kv_head_of(head);
  const LayerGeometry& g = shape_.geometry.layer(layer);
  const std::size_t key = static_cast<std::size_t>(g.key_width), value = static_cast<std::size_t>(g.value_width),
                    capacity = static_cast<std::size_t>(capacity_), count = static_cast<std::size_t>(slots);
  std::vector<float> rows(count * key);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (int d = 0; d < g.key_width; ++d)
      rows[slot * key + place_of(d, paired_[static_cast<std::size_t>(layer)])] =
          keys[slot * key + static_cast<std::size_t>(d)];
  write_part(this->keys(layer), own, bytes_of_head_, rows);
  if (values_in_rows_) return write_part(this->values(layer), own, bytes_of_head_, values);
  rows.assign(capacity * value, 0.0F);
  for (std::size_t slot = 0; slot < count; ++slot)
    for (std::size_t d = 0; d < value; ++d) rows[d * capacity + slot] = values[slot * value + d];
  write_part(this->values(layer), own, bytes_of_head_, rows);
}

std::unique_ptr<CacheStorage> PortableStorage::make_empty() const {
  auto empty = std::make_unique<PortableStorage>(shape_, backends_, flash_, paired_);
  empty->keeps_halves_ = keeps_halves_;
  return empty;
}

void PortableStorage::copy_from(CacheStorage& other) {
  const std::lock_guard lock(backends_.mutex());
  auto& from = static_cast<PortableStorage&>(other);
  on_cleared();
  from.apply_moves();
  if (from.capacity_ == 0) return;
  reserve(from.capacity_);
  if (values_in_rows_ != from.values_in_rows_) {
    std::vector<float> keys, values;
    for (int head = 0; head < shape_.geometry.heads(); ++head) {
      const LayerGeometry& g = shape_.geometry.layer_geometry(head);
      keys.resize(static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(g.key_width));
      values.resize(static_cast<std::size_t>(capacity_) * static_cast<std::size_t>(g.value_width));
      from.read_head(head, capacity_, keys, values);
      write_head(head, capacity_, keys, values);
    }
    return;
  }
  for (int layer = 0; layer < shape_.geometry.layers(); ++layer) {
    if (shape_.geometry.layer(layer).kv_heads == 0) continue;
    ggml_backend_tensor_copy(from.keys(layer), keys(layer));
    ggml_backend_tensor_copy(from.values(layer), values(layer));
  }
}

}  // namespace palimpsest
