// Keys and values of one sequence in a device's memory: a seat in a slab (portable_slab.h). Slots are those of the
// cache's tables.
#pragma once

#include <ggml-cpp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/device/portable_slab.h"

namespace palimpsest {

// How many sinks a sequence keeps the keys of a second time, to rotate them (portable.h); 0: none.
int rotated_sinks(const CacheOptions& cache, const AttentionRule& rule);

class PortableStorage final : public CacheStorage {
 public:
  // `flash`: the sequence's attention is ggml's flash attention. Throws Error if a device cannot write to, read or move
  // elements of this type. A layer's keys and values are on the layer's device.
  // `sinks`: SlabKind::sinks. `paired`: of each layer, the first so many dimensions of keys are stored as halves, for
  // pairs of neighbours; empty: none.
  PortableStorage(const CacheOptions& cache, StoragePool& pool, bool flash = false, std::vector<int> paired = {},
                  int sinks = 0);
  ~PortableStorage() override;

  // Grows the capacity to `slots` per head and keeps the contents. Throws Error when the device is out of memory.
  void reserve(int slots);
  void apply_moves();  // executes the moves since the last call
  // Whether the keys of sinks are rotated further in a step: they are saved before the first one, and come back before
  // a step that does not.
  int sinks() const { return kind_.sinks; }
  void rotate_sinks(bool rotate);
  void set_first_draft_slot(int slot) { first_draft_slot_ = slot; }

  void reserve_scores();  // of the slab's slots; throws Error
  void write_scores(int table, std::span<const float> scores);
  const StorageSeat& seat() const { return seat_; }  // none before reserve(), and after the cache was cleared
  bool flash() const { return flash_; }
  bool values_in_rows() const { return kind_.values_in_rows; }
  int capacity() const { return seat_ ? seat_->capacity() : 0; }

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
  std::uint64_t place() const override {
    constexpr unsigned kSeats = 20;  // bits
    return seat_ ? (seat_->generation() << kSeats) + static_cast<std::uint64_t>(seat_.index()) : 0;
  }
  std::size_t bytes_in_use() const override { return seat_ ? seat_->bytes_per_seat() : 0; }
  std::size_t bytes_peak() const override { return std::max(peak_, bytes_in_use()); }

 private:
  struct Run {  // neighbouring slots that move together
    int from, to, count;
  };
  void check_device(ggml_backend_t backend, CacheType stored) const;
  std::vector<Run> runs_of(int table) const;
  ggml_tensor* keys(int layer) const { return seat_->keys(layer); }
  ggml_tensor* values(int layer) const { return seat_->values(layer); }

  CacheOptions shape_;
  StoragePool& pool_;
  const Backends& backends_;
  SlabKind kind_;
  bool flash_, keeps_halves_ = false;
  std::vector<int> paired_;
  StorageSeat seat_;
  int first_draft_slot_ = 0;
  bool any_moved_ = false, has_scores_ = false;
  bool sinks_saved_ = false, sinks_rotated_ = false;
  std::size_t peak_ = 0;
  std::vector<std::byte> bytes_of_head_;
  std::vector<std::vector<int>> origin_;  // [table][slot] -> the slot that still has its token's bytes
};

}  // namespace palimpsest
