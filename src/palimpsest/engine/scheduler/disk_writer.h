// Writes kept caches to the DiskCache on its own thread, one at a time, while the stepping thread goes on:
//
//   stepping thread                        writer's thread
//   begin(entry)                     ->    makes room; copies a part of the cache, writes it; ...; renames the file
//   collect(): it is written         <-
//   abandon(): the cache is needed   ->    ends at the next part; the temporary file is removed
//
// The writer holds a lock while it copies a part, not while it waits for the disk: so abandon() waits for a copy of
// about a MiB. A kept cache does not change while it is kept, and others may share its pages (copy-on-write).
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/engine/scheduler/disk_cache.h"

namespace palimpsest {

class DiskWriter {
 public:
  // `wake`: called on the writer's thread when a write has ended.
  DiskWriter(std::shared_ptr<DiskCache> disk, std::function<void()> wake);
  ~DiskWriter();  // abandons

  // The stepping thread's. Requires: idle().
  void begin(const DiskCacheEntry& entry);
  bool idle() const;
  struct Result {
    bool written = false;   // false: it was there, has no room, or failed
    std::size_t bytes = 0;  // written
    std::string error;
  };
  std::optional<Result> collect();  // of a write that has ended, once
  void abandon() noexcept;          // from now on nothing of the entry is used
  void wait();                      // until the write has ended

 private:
  enum class State { kIdle, kWriting, kAbandoned, kEnded };
  void run(const std::stop_token& stop);
  Result write(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<DiskCache> disk_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;  // guards the members below, and the entry's cache and state
  std::condition_variable_any changed_;
  State state_ = State::kIdle;
  DiskCacheEntry entry_;
  std::vector<TokenId> tokens_;  // of the entry
  Result result_;
  std::jthread thread_;  // started by the first begin()
};

}  // namespace palimpsest
