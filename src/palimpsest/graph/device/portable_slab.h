// Memory for the keys and values of sequences of one kind on their devices, side by side, so that one operator reads
// those of several: one pair of tensors per layer,
//
//   K   [head_dim, capacity, lanes]    a row is one key
//   V   [value_dim, capacity, lanes]   in rows: for flash attention, and for types of blocks: a row is one value
//       [capacity, value_dim, lanes]   else, for the product with the weights: a row is one dimension
//
// A sequence has a seat: kv_heads lanes of each layer. Elements never written are zero: their product with a weight of
// 0 must be 0.
#pragma once

#include <ggml-cpp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/cache/geometry.h"
#include "palimpsest/cache/storage.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

ggml_type ggml_type_of(CacheType type);

using Box = std::array<std::int64_t, 3>;

// A graph of copies on a device, run once.
class Copies {
 public:
  Copies(ggml_backend_t backend, ggml_gallocr_ptr& memory, std::size_t max);
  // Copies a box of `source` at byte offset `from` to offset `to` in `target`. aside: source and target may overlap;
  // copies run in the order given.
  void add(ggml_tensor* source, std::size_t from, ggml_tensor* target, std::size_t to, const Box& box,
           bool aside = false);
  void run();  // throws Error

 private:
  ggml_tensor* view(ggml_tensor* t, std::size_t offset, const Box& box);

  ggml_backend_t backend_;
  ggml_gallocr_ptr& memory_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;
};

// What the sequences of a slab have in common.
struct SlabKind {
  HeadGeometry geometry;
  bool values_in_rows = false;
  // The number of first slots whose keys are kept a second time, as they were written: their copies among the others
  // are rotated further in each step (PortablePath::Sinks).
  int sinks = 0;
  bool operator==(const SlabKind&) const = default;
};

class StoragePool;

class StorageSlab {
 public:
  StorageSlab(SlabKind kind, StoragePool& pool);

  const SlabKind& kind() const { return kind_; }
  int capacity() const { return capacity_; }  // slots of each seat, a multiple of kStorageSlots
  int seats() const { return static_cast<int>(needed_.size()); }
  int free_seat() const;           // -1: none
  void take(int seat, int slots);  // the sequence needs so many
  void need(int seat, int slots);  // it needs so many now
  int needed(int seat) const { return needed_[static_cast<std::size_t>(seat)]; }
  void give_back(int seat);
  bool empty() const;                        // all seats are free
  bool is_alone() const;                     // all but one
  bool may_hold(int seat, int slots) const;  // whether so many slots for each seat are no waste, if `seat` needs them

  // Grows to so many slots and seats, layer by layer: at most one is in memory twice. false: a device has no memory;
  // nothing is lost then, but if values are in columns: layers differ in capacity, and the slab is not usable().
  bool grow(int capacity, int seats);
  bool usable() const { return usable_; }

  ggml_tensor* keys(int layer) const { return layers_[static_cast<std::size_t>(layer)].keys; }
  ggml_tensor* values(int layer) const { return layers_[static_cast<std::size_t>(layer)].values; }
  ggml_tensor* sinks(int layer) const { return layers_[static_cast<std::size_t>(layer)].sinks; }  // f32, as keys()
  // Scores of slots, f32 [1, capacity, lanes]; nullptr before reserve_scores().
  ggml_tensor* scores(int layer) const { return layers_[static_cast<std::size_t>(layer)].scores; }
  bool has_scores() const { return scores_; }
  bool reserve_scores();  // false: no memory

  std::size_t bytes_per_seat() const { return needed_.empty() ? 0 : bytes_ / needed_.size(); }
  std::uint64_t generation() const { return generation_; }  // of the tensors; unique across slabs

 private:
  struct Layer {
    ggml_context_ptr context;
    DeviceBuffer buffer;
    ggml_tensor *keys = nullptr, *values = nullptr, *sinks = nullptr, *scores = nullptr;
  };
  bool make_layer(int layer, int capacity, int seats, bool scores, Layer& out) const;
  bool rebuild(int capacity, int seats, bool scores);

  SlabKind kind_;
  StoragePool& pool_;
  std::vector<Layer> layers_;
  std::vector<int> needed_;  // [seats] slots; 0: the seat is free
  int capacity_ = 0;
  bool scores_ = false, usable_ = true;
  std::size_t bytes_ = 0;
  std::uint64_t generation_ = 0;
};

// A sequence's place in a slab; given back at the end.
class StorageSeat {
 public:
  StorageSeat() = default;
  StorageSeat(std::shared_ptr<StorageSlab> slab, int index, int slots);
  StorageSeat(StorageSeat&& other) noexcept : slab_(std::move(other.slab_)), index_(other.index_) {}
  StorageSeat& operator=(StorageSeat&& other) noexcept;
  ~StorageSeat() { release(); }
  void release();

  explicit operator bool() const { return slab_ != nullptr; }
  StorageSlab* operator->() const { return slab_.get(); }
  const StorageSlab* slab() const { return slab_.get(); }
  int index() const { return index_; }
  int lane(int layer) const { return index_ * slab_->kind().geometry.layer(layer).kv_heads; }  // its first one

 private:
  std::shared_ptr<StorageSlab> slab_;
  int index_ = 0;
};

// The slabs of all sequences of a decoder. Used by whoever holds Backends::mutex(). A slab without sequences keeps its
// memory, and graphs that were planned for it, for the next ones; it is freed when they need another.
class StoragePool {
 public:
  explicit StoragePool(const Backends& backends) : backends_(backends) {}
  // A seat with room for so many slots. Throws Error when a device is out of memory.
  StorageSeat take(const SlabKind& kind, int slots);
  // The sequence in `seat` needs so many slots: its slab grows, or it moves to another. Throws Error: `seat` is as it
  // was then, but if its slab is not usable().
  void grow(StorageSeat& seat, int slots);
  void copy(const StorageSeat& from, const StorageSeat& to);  // of slabs of the same kind
  void copy_sinks(const StorageSeat& seat, bool back);        // keys of the first slots to SlabKind::sinks, or back
  const Backends& backends() const { return backends_; }
  ggml_gallocr_ptr& copy_memory(ggml_backend_t backend);  // of Copies; freed only for a larger one (freed_buffers())

 private:
  StorageSeat join(const SlabKind& kind, int slots, const StorageSlab* but);  // none: false
  [[noreturn]] void fail_for(int slots) const;

  const Backends& backends_;
  std::vector<std::shared_ptr<StorageSlab>> slabs_;
  std::map<ggml_backend_t, ggml_gallocr_ptr> memory_;
};

}  // namespace palimpsest
