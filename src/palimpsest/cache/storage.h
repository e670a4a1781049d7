// Storage of keys and values outside a cache's pages: the memory of a device (graph/device/portable_storage.h). The
// cache decides what moves; the storage executes the moves before the next keys are written.
#pragma once

#include <cstddef>
#include <span>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

class CacheStorage {
 public:
  virtual ~CacheStorage() = default;
  // Reserves memory for on_moves() of a table of so many slots; throws, unchanged.
  virtual void reserve_moves(int table, int slots) = 0;
  // The moves of one eviction in one slot table. May be called several times between two steps. Cannot fail.
  virtual void on_moves(int table, std::span<const Move> moves) = 0;
  virtual void on_cleared() = 0;  // all slots are empty
  virtual std::size_t bytes_in_use() const = 0;
  virtual std::size_t bytes_peak() const = 0;
};

}  // namespace palimpsest
