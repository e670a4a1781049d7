// A prepared change of a cache, which can no longer fail: commit it, or roll it back (the destructor does).
//
//   auto change = cache.prepare({.drop = plan.drop, .insert = 1});   // acquires all memory; may throw
//   change.commit();                                                 // cannot fail
#pragma once

#include <utility>

#include "palimpsest/core/workers.h"

namespace palimpsest {

class Cache;

// While it exists the cache is unchanged and accepts no other change. The spans of the CacheChange must outlive it.
class [[nodiscard]] Transaction {
 public:
  Transaction(Transaction&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction() { rollback(); }

  // Moves bytes on `workers`. Allocates nothing.
  void commit(Workers* workers = nullptr) noexcept;
  void rollback() noexcept;  // releases the acquired memory

 private:
  friend class Cache;
  explicit Transaction(Cache& cache) : cache_(&cache) {}
  Cache* cache_;
};

}  // namespace palimpsest
