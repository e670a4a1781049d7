// Where keys and values are when they are not in a cache's pages: the memory of a device (model/portable_storage.h).
// The cache decides what moves; the storage carries it out before the next keys are written.
#pragma once

#include <cstddef>
#include <span>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

class CacheStorage {
 public:
  virtual ~CacheStorage() = default;
  // Memory for moved() of a table of so many slots; throws, unchanged.
  virtual void reserve_moves(int table, int slots) = 0;
  // One eviction's moves in one slot table. Several may come between two steps. Cannot fail.
  virtual void moved(int table, std::span<const Move> moves) = 0;
  virtual void cleared() = 0;  // no slot holds a token any more
  virtual std::size_t bytes_in_use() const = 0;
  virtual std::size_t bytes_peak() const = 0;
};

}  // namespace palimpsest
