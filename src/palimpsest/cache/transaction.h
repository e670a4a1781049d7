// A change of a cache that is prepared and can no longer fail: commit it, or let it go and nothing has happened.
//
//   auto change = cache.prepare({.drop = plan.drop, .insert = 1});   // takes all memory; may throw
//   change.commit();                                                 // cannot fail
#pragma once

#include <utility>

#include "palimpsest/core/workers.h"

namespace palimpsest {

class Cache;

// Until its end the cache is as it was, and takes no other change. Lists that the CacheChange names must live as long.
class [[nodiscard]] Transaction {
 public:
  Transaction(Transaction&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction() { rollback(); }

  // Bytes that move do so on `workers`. Allocates nothing.
  void commit(Workers* workers = nullptr) noexcept;
  void rollback() noexcept;  // gives back the memory that was taken; also what letting go does

 private:
  friend class Cache;
  explicit Transaction(Cache& cache) : cache_(&cache) {}
  Cache* cache_;
};

}  // namespace palimpsest
