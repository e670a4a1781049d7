// Storage of keys and values outside a cache's pages: the memory of a device (graph/device/portable_storage.h). The
// cache decides what moves; the storage executes the moves before the next keys are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

inline constexpr int kStorageSlots = 256;  // a storage has a multiple of it, the same for all heads

class CacheStorage {
 public:
  virtual ~CacheStorage() = default;
  // Reserves memory for on_moves() of a table of so many slots; throws, unchanged.
  virtual void reserve_moves(int table, int slots) = 0;
  // The moves of one eviction in one slot table. May be called several times between two steps. Cannot fail.
  virtual void on_moves(int table, std::span<const Move> moves) = 0;
  // The slot behind all tables' slots with the keys and values of the last step's draft `index`, which took none.
  virtual int draft_slot(int index) const = 0;
  // Whether the scores of the tables' slots are here, changed by steps on the device (SequenceStep::fading), until they
  // are read and dropped: Cache::fetch_scores().
  virtual bool has_scores() const = 0;
  virtual void read_scores(int table, std::span<float> scores) = 0;
  virtual void drop_scores() = 0;
  virtual void on_cleared() = 0;  // all slots are empty
  // The keys and values of a head's first `slots` slots, as pages hold them, in f32: [slots][key width], [slots][value
  // width]; read_head(): empty: not read. write_head() takes memory, and throws Error. From any thread.
  virtual void read_head(int head, int slots, std::span<float> keys, std::span<float> values) = 0;
  virtual void write_head(int head, int slots, std::span<const float> keys, std::span<const float> values) = 0;
  // The device has the rotary pairs of keys as halves, in a type of blocks: keys in another order would be rounded once
  // more, so read_head() and write_head() have them so.
  virtual bool keeps_halves() const = 0;
  // Becomes a copy of a storage of the same kind. Throws Error.
  virtual void copy_from(CacheStorage& other) = 0;
  virtual std::unique_ptr<CacheStorage> make_empty() const = 0;  // another one for a cache of the same options
  // Sequences whose numbers follow each other are neighbours on the device: in this order a step serves them together.
  virtual std::uint64_t place() const = 0;
  virtual std::size_t bytes_in_use() const = 0;
  virtual std::size_t bytes_peak() const = 0;
};

}  // namespace palimpsest
