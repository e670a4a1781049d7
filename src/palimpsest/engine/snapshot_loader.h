// Reads sequences back from snapshots beside the stepping thread, which alone takes pages:
//
//   begin()                                        stepping thread
//   slot tables are read and checked               loader's thread
//   advance(): pages are taken, some in each step  stepping thread
//   keys and values are copied                     loader's thread
//   advance(): the sequence is handed back         stepping thread
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "palimpsest/engine/lent_sequence.h"

namespace palimpsest {

class SnapshotLoader;

// One sequence on its way. Who lets it go before it is done gives up: the sequence comes back by SequenceReturns.
class SnapshotLoad {
 public:
  ~SnapshotLoad();
  SnapshotLoad(const SnapshotLoad&) = delete;
  SnapshotLoad& operator=(const SnapshotLoad&) = delete;

  std::size_t promised() const { return promised_; }

 private:
  friend class SnapshotLoader;
  enum class State { kReading, kTaking, kCopying, kDone, kFailed };
  SnapshotLoad(std::shared_ptr<const Snapshot> snapshot, std::unique_ptr<Sequence> sequence,
               std::shared_ptr<SequenceReturns> returns);
  void work() noexcept;  // in the loader's thread: reads, or copies

  std::shared_ptr<const Snapshot> snapshot_;
  std::unique_ptr<Sequence> sequence_;
  std::size_t promised_ = 0;
  std::shared_ptr<SequenceReturns> returns_;
  ByteReader rest_;
  std::atomic<State> state_ = State::kReading;
  std::string error_;
};

class SnapshotLoader {
 public:
  // `wake`: called in the loader's thread when a load may go on.
  SnapshotLoader(std::shared_ptr<SequenceReturns> returns, std::function<void()> wake);
  ~SnapshotLoader();  // waits for the piece of work in hand

  // A new sequence becomes what a checked snapshot holds. From the stepping thread, as what follows.
  std::shared_ptr<SnapshotLoad> begin(std::shared_ptr<const Snapshot> snapshot, std::unique_ptr<Sequence> sequence,
                                      std::size_t promised);
  // The sequence, once it is read; nullptr: not yet. Throws Error: it cannot be.
  std::unique_ptr<Sequence> advance(const std::shared_ptr<SnapshotLoad>& load);

 private:
  void hand_over(std::shared_ptr<SnapshotLoad> load);
  void run(std::stop_token stop);

  std::shared_ptr<SequenceReturns> returns_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable_any came_;
  std::deque<std::shared_ptr<SnapshotLoad>> queue_;
  std::jthread thread_;  // since the first begin()
};

}  // namespace palimpsest
