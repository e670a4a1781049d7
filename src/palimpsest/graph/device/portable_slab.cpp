#include "palimpsest/graph/device/portable_slab.h"

#include <ggml-alloc.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <string_view>
#include <utility>

#include "palimpsest/cache/storage_growth.h"
#include "palimpsest/core/error.h"

namespace palimpsest {

namespace {

constexpr int kMaxUnused = 2;  // a slab may have so many times the slots that its sequences need

std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

int whole_slots(int slots) {
  return (slots + kStorageSlots - 1) / kStorageSlots * kStorageSlots;
}

}  // namespace

Copies::Copies(ggml_backend_t backend, ggml_gallocr_ptr& memory, std::size_t max)
    : backend_(backend),
      memory_(memory),
      context_(
          ggml_init({6 * max * ggml_tensor_overhead() + ggml_graph_overhead_custom(6 * max, false), nullptr, true})) {
  if (!context_) fail("no memory for {} copies", max);
  graph_ = ggml_new_graph_custom(context_.get(), 6 * max, false);
}

void Copies::add(ggml_tensor* source, std::size_t from, ggml_tensor* target, std::size_t to, const Box& box,
                 bool aside) {
  ggml_tensor* what = view(source, from, box);
  if (aside) what = ggml_cont(context_.get(), what);
  ggml_build_forward_expand(graph_, ggml_cpy(context_.get(), what, view(target, to, box)));
}

void Copies::run() {
  const std::size_t before = ggml_gallocr_get_buffer_size(memory_.get(), 0);
  const bool placed = ggml_gallocr_alloc_graph(memory_.get(), graph_);
  if (before > 0 && ggml_gallocr_get_buffer_size(memory_.get(), 0) != before) count_freed_buffer();
  if (!placed) memory_.reset();  // after a failure it would keep the address of a freed buffer
  if (!placed)
    fail("no memory on device {} to move keys and values; give a smaller --budget", ggml_backend_name(backend_));
  if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS)
    fail("device {} failed to move keys and values", ggml_backend_name(backend_));
}

ggml_tensor* Copies::view(ggml_tensor* t, std::size_t offset, const Box& box) {
  return ggml_view_3d(context_.get(), t, box[0], box[1], box[2], t->nb[1], t->nb[2], offset);
}

ggml_type ggml_type_of(CacheType type) {
  for (const ggml_type each : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0})
    if (std::string_view(ggml_type_name(each)) == kv_format(type).name) return each;
  assert(false && "evict/legality.cpp refuses the others");
  return GGML_TYPE_F32;
}

StorageSlab::StorageSlab(SlabKind kind, StoragePool& pool) : kind_(std::move(kind)), pool_(pool) {
  layers_.resize(static_cast<std::size_t>(kind_.geometry.layers()));
}

bool StorageSlab::empty() const {
  return std::ranges::count(needed_, 0) == std::ssize(needed_);
}

bool StorageSlab::is_alone() const {
  return std::ranges::count(needed_, 0) + 1 == std::ssize(needed_);
}

int StorageSlab::free_seat() const {
  const auto found = std::ranges::find(needed_, 0);
  return found == needed_.end() ? -1 : static_cast<int>(found - needed_.begin());
}

void StorageSlab::take(int seat, int slots) {
  assert(needed_[at(seat)] == 0 && slots > 0 && slots <= capacity_);
  needed_[at(seat)] = slots;
}

void StorageSlab::need(int seat, int slots) {
  needed_[at(seat)] = std::max(needed_[at(seat)], slots);
}

// Zero for the next sequence: what this one left may be no number, and no weight hides that.
void StorageSlab::give_back(int seat) {
  needed_[at(seat)] = 0;
  if (empty()) {
    for (const Layer& layer : layers_)
      if (layer.buffer) ggml_backend_buffer_clear(layer.buffer.get(), 0);
    return;
  }
  for (int i = 0; i < kind_.geometry.layers(); ++i)
    for (ggml_tensor* t : {keys(i), values(i), sinks(i), scores(i)})
      if (t != nullptr) {
        const std::size_t bytes = at(kind_.geometry.layer(i).kv_heads) * t->nb[2];
        ggml_backend_tensor_memset(t, 0, at(seat) * bytes, bytes);
      }
}

bool StorageSlab::make_layer(int index, int capacity, int seats, bool scores, Layer& layer) const {
  const LayerGeometry& g = kind_.geometry.layer(index);
  const std::int64_t lanes = std::int64_t{g.kv_heads} * seats;
  layer.context.reset(ggml_init({4 * ggml_tensor_overhead(), nullptr, true}));
  if (!layer.context) fail("no memory for a cache's tables");
  ggml_context* c = layer.context.get();
  layer.keys = ggml_new_tensor_3d(c, ggml_type_of(g.key_type), g.key_width, capacity, lanes);
  const std::int64_t row = kind_.values_in_rows ? g.value_width : capacity,
                     rows = kind_.values_in_rows ? capacity : g.value_width;
  layer.values = ggml_new_tensor_3d(c, ggml_type_of(g.value_type), row, rows, lanes);
  if (kind_.sinks > 0) layer.sinks = ggml_new_tensor_3d(c, GGML_TYPE_F32, g.key_width, kind_.sinks, lanes);
  if (scores) layer.scores = ggml_new_tensor_3d(c, GGML_TYPE_F32, 1, capacity, lanes);
  layer.buffer.reset(ggml_backend_alloc_ctx_tensors(c, pool_.backends().of_layer(index)));
  if (!layer.buffer) return false;
  ggml_backend_buffer_clear(layer.buffer.get(), 0);
  return true;
}

bool StorageSlab::rebuild(int capacity, int seats, bool scores) {
  usable_ = kind_.values_in_rows;  // else, until all layers have grown
  std::size_t bytes = 0;
  for (int i = 0; i < kind_.geometry.layers(); ++i) {
    const LayerGeometry& g = kind_.geometry.layer(i);
    if (g.kv_heads == 0) continue;
    Layer& old = layers_[at(i)];
    const std::int64_t lanes = old.keys == nullptr ? 0 : old.keys->ne[2],
                       held = old.keys == nullptr ? 0 : old.keys->ne[1];
    const bool fits = old.keys != nullptr && held >= capacity && lanes >= std::int64_t{g.kv_heads} * seats &&
                      (!scores || old.scores != nullptr);
    if (!fits) {
      Layer layer;
      if (!make_layer(i, capacity, seats, scores, layer)) return false;
      if (old.keys != nullptr) {
        ggml_backend_t const backend = pool_.backends().of_layer(i);
        Copies copies(backend, pool_.copy_memory(backend), 4);
        copies.add(old.keys, 0, layer.keys, 0, {g.key_width, held, lanes});
        copies.add(old.values, 0, layer.values, 0, {old.values->ne[0], old.values->ne[1], lanes});
        if (old.sinks != nullptr) copies.add(old.sinks, 0, layer.sinks, 0, {g.key_width, kind_.sinks, lanes});
        if (scores && old.scores != nullptr) copies.add(old.scores, 0, layer.scores, 0, {1, held, lanes});
        copies.run();
      }
      old = std::move(layer);
      generation_ = next_generation();
    }
    bytes += ggml_backend_buffer_get_size(old.buffer.get());
  }
  bytes_ = bytes;
  capacity_ = capacity;
  needed_.resize(at(seats));
  scores_ = scores;
  usable_ = true;
  return true;
}

bool StorageSlab::grow(int capacity, int seats) {
  return rebuild(std::max(capacity, capacity_), std::max(seats, this->seats()), scores_);
}

bool StorageSlab::reserve_scores() {
  return scores_ || rebuild(capacity_, seats(), true);
}

bool StorageSlab::may_hold(int seat, int slots) const {
  std::int64_t needed = 0;
  for (int i = 0; i < seats(); ++i) needed += i == seat ? slots : needed_[at(i)];
  return std::int64_t{slots} * seats() <= kMaxUnused * needed;
}

ggml_gallocr_ptr& StoragePool::copy_memory(ggml_backend_t backend) {
  ggml_gallocr_ptr& memory = memory_[backend];
  if (!memory) memory.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
  if (!memory) fail("no memory for copies of keys and values");
  return memory;
}

void StoragePool::fail_for(int slots) const {
  fail("no memory on device {} for a cache of {} slots; give a smaller --budget, or a --cache-type of 2 bytes",
       backends_.names(), slots);
}

void StoragePool::copy_sinks(const StorageSeat& seat, bool back) {
  const SlabKind& kind = seat.slab()->kind();
  for (int i = 0; i < kind.geometry.layers(); ++i) {
    const LayerGeometry& g = kind.geometry.layer(i);
    if (g.kv_heads == 0) continue;
    ggml_backend_t const backend = backends_.of_layer(i);
    Copies copies(backend, copy_memory(backend), 1);
    ggml_tensor *keys = seat.slab()->keys(i), *sinks = seat.slab()->sinks(i);
    const std::size_t key = at(seat.lane(i)) * keys->nb[2], sink = at(seat.lane(i)) * sinks->nb[2];
    const Box box = {g.key_width, kind.sinks, g.kv_heads};
    if (back)
      copies.add(sinks, sink, keys, key, box);
    else
      copies.add(keys, key, sinks, sink, box);
    copies.run();
  }
}

StorageSeat::StorageSeat(std::shared_ptr<StorageSlab> slab, int index, int slots)
    : slab_(std::move(slab)), index_(index) {
  slab_->take(index, slots);
}

StorageSeat& StorageSeat::operator=(StorageSeat&& other) noexcept {
  release();
  slab_ = std::move(other.slab_);
  index_ = other.index_;
  return *this;
}

void StorageSeat::release() {
  if (slab_ != nullptr) slab_->give_back(index_);
  slab_.reset();
}

// A seat beside other sequences that have as much room; none if there is none. On RPC servers only in an empty slab:
// they cannot clear a part of a buffer.
StorageSeat StoragePool::join(const SlabKind& kind, int slots, const StorageSlab* but) {
  const int capacity = whole_slots(slots);
  for (const auto& slab : slabs_) {
    if (slab.get() == but || slab->kind() != kind || !slab->usable() || slab->capacity() < capacity ||
        slab->capacity() > kMaxUnused * capacity || (backends_.remote() && !slab->empty()))
      continue;
    if (const int seat = slab->free_seat(); seat >= 0) return {slab, seat, slots};
    const int before = slab->seats();
    if (slab->grow(slab->capacity(), before + std::max(1, before / 4))) return {slab, before, slots};
  }
  return {};
}

StorageSeat StoragePool::take(const SlabKind& kind, int slots) {
  if (StorageSeat seat = join(kind, slots, nullptr)) return seat;
  std::erase_if(slabs_, [](const auto& slab) { return slab->empty(); });
  const auto slab = std::make_shared<StorageSlab>(kind, *this);
  if (!slab->grow(whole_slots(slots), 1)) fail_for(slots);
  slabs_.push_back(slab);
  return {slab, 0, slots};
}

// A sequence that is alone joins others, so that one operator serves them. Memory is taken in few and large steps: a
// GPU takes a millisecond for each tensor.
void StoragePool::grow(StorageSeat& seat, int slots) {
  const auto move = [&](StorageSeat other) {
    copy(seat, other);
    seat = std::move(other);
  };
  if (const int before = seat->capacity(); slots > before) {
    const int capacity = whole_slots(std::max(slots, before + before / kStorageGrowth));
    const bool joins = seat->is_alone() && !backends_.remote();
    StorageSeat other = joins ? join(seat->kind(), slots, seat.slab()) : StorageSeat();
    if (other) {
      move(std::move(other));
    } else if (!seat->may_hold(seat.index(), capacity) ||
               (!seat->grow(capacity, 0) && !seat->grow(whole_slots(slots), 0))) {
      if (!seat->usable() || seat->is_alone()) fail_for(slots);
      move(take(seat->kind(), slots));
    }
  }
  seat->need(seat.index(), slots);
}

void StoragePool::copy(const StorageSeat& from, const StorageSeat& to) {
  const HeadGeometry& geometry = from.slab()->kind().geometry;
  const bool in_rows = from.slab()->kind().values_in_rows;
  if (from.slab()->has_scores() && !to->reserve_scores()) fail_for(to->capacity());
  for (int i = 0; i < geometry.layers(); ++i) {
    const LayerGeometry& g = geometry.layer(i);
    if (g.kv_heads == 0) continue;
    ggml_backend_t const backend = backends_.of_layer(i);
    Copies copies(backend, copy_memory(backend), 4);
    const std::int64_t slots = std::min(from.slab()->capacity(), to.slab()->capacity());
    const auto add = [&](ggml_tensor* source, ggml_tensor* target, std::int64_t width, std::int64_t rows) {
      copies.add(source, at(from.lane(i)) * source->nb[2], target, at(to.lane(i)) * target->nb[2],
                 {width, rows, g.kv_heads});
    };
    add(from.slab()->keys(i), to.slab()->keys(i), g.key_width, slots);
    add(from.slab()->values(i), to.slab()->values(i), in_rows ? g.value_width : slots, in_rows ? slots : g.value_width);
    if (const int sinks = from.slab()->kind().sinks; sinks > 0)
      add(from.slab()->sinks(i), to.slab()->sinks(i), g.key_width, sinks);
    if (from.slab()->scores(i) != nullptr) add(from.slab()->scores(i), to.slab()->scores(i), 1, slots);
    copies.run();
  }
}

}  // namespace palimpsest
