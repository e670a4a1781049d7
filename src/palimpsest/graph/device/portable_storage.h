// Keys and values of one sequence in a device's memory, one pair of tensors per layer:
//
//   K   [head_dim, capacity, kv_heads]    a row is one key
//   V   [value_dim, capacity, kv_heads]   for flash attention, and for types of blocks: a row is one value
//       [capacity, value_dim, kv_heads]   else, for the product with the weights: a row is one dimension
// Slots are those of the cache's tables. Elements never written are zero: their product with a weight of 0 must be 0.
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

ggml_type ggml_type_of(CacheType type);

class PortableStorage final : public CacheStorage {
 public:
  // `flash`: the sequence's attention is ggml's flash attention. Throws Error if a device cannot write to, read or move
  // elements of this type. A layer's keys and values are on the layer's device.
  // `paired`: of each layer, the first so many dimensions of keys are stored as halves, for pairs of neighbours; empty:
  // none.
  PortableStorage(const CacheOptions& cache, const Backends& backends, bool flash = false,
                  std::vector<int> paired = {});
  ~PortableStorage() override;

  // Grows the capacity to `slots` per head and keeps the contents. Throws Error when the device is out of memory: the
  // keys and values are lost then, and every further call throws until the cache is cleared.
  void reserve(int slots);
  void apply_moves();  // executes the moves since the last call
  void set_first_draft_slot(int slot) { first_draft_slot_ = slot; }

  // Scores of a layer's slots, f32 [capacity, kv_heads]. reserve_scores(): what they held is lost.
  ggml_tensor* scores(int layer) const { return layers_[static_cast<std::size_t>(layer)].scores; }
  void reserve_scores();
  void write_scores(int table, std::span<const float> scores);
  ggml_tensor* keys(int layer) const { return layers_[static_cast<std::size_t>(layer)].keys; }
  ggml_tensor* values(int layer) const { return layers_[static_cast<std::size_t>(layer)].values; }
  bool flash() const { return flash_; }
  bool values_in_rows() const { return values_in_rows_; }
  int capacity() const { return capacity_; }
  std::uint64_t generation() const { return generation_; }  // of the tensors; unique across storages

  void reserve_moves(int table, int slots) override;
  void on_moves(int table, std::span<const Move> moves) override;
  bool has_scores() const override { return has_scores_; }
  void read_scores(int table, std::span<float> scores) override;
  void drop_scores() override { has_scores_ = false; }
  int draft_slot(int index) const override { return first_draft_slot_ + index; }
  void on_cleared() override;
  void read_head(int head, int slots, std::span<float> keys, std::span<float> values) override;
  void write_head(int head, int slots, std::span<const float> keys, std::span<const float> values) override;
  void copy_from(CacheStorage& other) override;
  std::unique_ptr<CacheStorage> make_empty() const override;
  bool keeps_halves() const override { return keeps_halves_; }
  std::size_t bytes_in_use() const override { return bytes_; }
  std::size_t bytes_peak() const override { return peak_; }

 private:
  struct Layer {
    ggml_context_ptr context;
    DeviceBuffer buffer;
    ggml_tensor *keys = nullptr, *values = nullptr;
    ggml_context_ptr context_of_scores;
    DeviceBuffer scores_buffer;
    ggml_tensor* scores = nullptr;
  };
  struct Run {  // neighbouring slots that move together
    int from, to, count;
  };
  ggml_gallocr_ptr& memory_of(ggml_backend_t backend);
  Layer make_layer(int layer, int capacity) const;
  void check_device(ggml_backend_t backend, CacheType stored) const;
  std::vector<Run> runs_of(int table) const;

  CacheOptions shape_;
  const Backends& backends_;
  bool flash_, values_in_rows_, keeps_halves_ = false;
  std::vector<int> paired_;
  std::map<ggml_backend_t, ggml_gallocr_ptr> memory_;  // of copies; freed only for a larger one (freed_buffers())
  std::vector<Layer> layers_;
  int capacity_ = 0, first_draft_slot_ = 0;
  bool lost_ = false, any_moved_ = false, has_scores_ = false;
  std::uint64_t generation_ = 0;
  std::size_t bytes_ = 0, peak_ = 0;
  std::vector<std::byte> bytes_of_head_;
  std::vector<std::vector<int>> origin_;  // [table][slot] -> the slot that still has its token's bytes
};

}  // namespace palimpsest
