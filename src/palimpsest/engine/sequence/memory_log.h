// What a sequence's cache drops, and when: the data of views that show forgetting. A sequence records only into a log
// that was attached (Sequence::set_memory_log); without one it does nothing.
//
//   Sequence     begin_drop(cache, plan)   the victims of each slot table, before the drop is committed
//                end_drop(cache)           which of them were merged, after it
//                restart(cache)            the cache was replaced: a kept prefix, a snapshot
//   reader       changes(), start()        all since start(); take() hands them over and forgets them
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

struct MemoryChange {
  std::int32_t table = 0;       // the slot table of one or more heads (Cache::table_of)
  Position position = 0;        // the token's
  Position at = 0;              // tokens of the text when it happened: Cache::next()
  Position into = kNoPosition;  // merged into the token at this position; kNoPosition: evicted
};

struct MergedInto {
  std::int32_t table = 0;
  Position position = 0, into = 0;  // a merged token; the one whose slot it shares

  bool operator==(const MergedInto&) const = default;
};

// What a cache holds.
struct MemoryState {
  Position at = 0;                               // Cache::next()
  std::vector<std::vector<PositionRange>> kept;  // [table] tokens with a slot, ascending
  std::vector<MergedInto> merged;                // by table, then position
};
MemoryState memory_state(const Cache& cache);

class MemoryLog {
 public:
  // `max`: changes kept; of more, the oldest half is forgotten.
  explicit MemoryLog(std::size_t max) : max_(max) {}
  static constexpr std::size_t bytes(std::size_t max) { return max * sizeof(MemoryChange); }

  // Before and after a drop of tokens outside windows, and of victims.
  void begin_drop(const Cache& cache, const Victims& outside, const Victims& victims);
  void end_drop(const Cache& cache);
  void restart(const Cache& cache);
  void rewind(Position position);  // the text ends there now

  // The cache's state before the changes; nullopt: it was empty.
  const std::optional<MemoryState>& start() const { return start_; }
  const std::vector<MemoryChange>& changes() const { return changes_; }  // in order of time
  bool incomplete() const { return incomplete_; }                        // changes were forgotten
  struct Taken {
    std::optional<MemoryState> start;
    std::vector<MemoryChange> changes;
  };
  // All since the last call. If changes were forgotten: none, and `cache`'s state now as the start.
  Taken take(const Cache& cache);
  void lose() { incomplete_ = true; }  // what was taken last did not arrive

 private:
  void add(const MemoryChange& change);

  std::size_t max_;
  std::optional<MemoryState> start_;
  std::vector<MemoryChange> changes_;
  bool incomplete_ = false;
  std::size_t dropped_ = 0;         // changes of the drop in progress: the last ones
  std::vector<MergedInto> merged_;  // before the drop in progress
};

}  // namespace palimpsest
