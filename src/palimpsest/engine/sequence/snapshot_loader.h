// Loads saved sequences on its own thread; only the stepping thread takes pages:
//
//   begin()                                        stepping thread
//   opens; reads and checks slot tables                   loader's thread
//   advance(): takes pages, some in each step      stepping thread
//   copies keys and values                         loader's thread
//   advance(): returns the sequence                stepping thread
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "palimpsest/engine/sequence/released_sequence.h"

namespace palimpsest {

class SnapshotLoader;

// One load in progress. Destroying it before it is done cancels it: the sequence goes to SequenceReturns.
class SnapshotLoad {
 public:
  ~SnapshotLoad();
  SnapshotLoad(const SnapshotLoad&) = delete;
  SnapshotLoad& operator=(const SnapshotLoad&) = delete;

 private:
  friend class SnapshotLoader;
  enum class State { kReading, kTaking, kCopying, kDone, kFailed };
  SnapshotLoad(std::function<ByteReader()> open, std::unique_ptr<Sequence> sequence,
               std::shared_ptr<SequenceReturns> returns);
  void work() noexcept;  // loader's thread: reads tables, or copies pages

  std::function<ByteReader()> open_;
  std::unique_ptr<Sequence> sequence_;
  std::uint64_t id_ = 0;  // of the request
  std::shared_ptr<SequenceReturns> returns_;
  ByteReader rest_{std::span<const std::byte>(), ""};
  std::atomic<State> state_ = State::kReading;
  std::string error_;
};

class SnapshotLoader {
 public:
  // `wake`: called on the loader's thread when advance() can make progress.
  SnapshotLoader(std::shared_ptr<SequenceReturns> returns, std::function<void()> wake);
  ~SnapshotLoader();  // waits for the current work()

  // Starts to load what `open` returns, the saved form of a sequence and its checksum (Snapshot::sequence_bytes), into
  // a new sequence of request `id`. `open` is called on the loader's thread; it may throw. These functions are the
  // stepping thread's.
  std::shared_ptr<SnapshotLoad> begin(std::function<ByteReader()> open, std::unique_ptr<Sequence> sequence,
                                      std::uint64_t id);
  // The sequence; nullptr: not done. Throws Error if the load failed.
  std::unique_ptr<Sequence> advance(const std::shared_ptr<SnapshotLoad>& load);
  // After that Error: the sequence, empty. Its request keeps what it reserved.
  static std::unique_ptr<Sequence> take_back(SnapshotLoad& load);

 private:
  void hand_over(std::shared_ptr<SnapshotLoad> load);
  void run(std::stop_token stop);

  std::shared_ptr<SequenceReturns> returns_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable_any came_;
  std::deque<std::shared_ptr<SnapshotLoad>> queue_;
  std::jthread thread_;  // started by the first begin()
};

}  // namespace palimpsest
