// Sequences used by other threads than the stepping thread.
//
//   stepping thread                               another thread
//   a request ends: KeptSequence            ->    write(): reads tables and pages, which no longer change
//   collect(): frees its pages              <-    the last owner destroys the KeptSequence
//
// Only the stepping thread may use the page pool (cache/pages.h): so only it destroys a sequence, and the bytes that
// its request reserved count until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/engine/sequence/snapshot.h"

namespace palimpsest {

// Collects returned sequences. Shared by the stepping thread and all owners of one.
class SequenceReturns {
 public:
  void expect_one();  // stepping thread; reserves memory for one more, so that give_back() cannot fail
  // From any thread; once for each expect_one(). `id`: of the request whose reservation ends with the sequence; 0:
  // none.
  void give_back(std::unique_ptr<Sequence> sequence, std::uint64_t id) noexcept;
  // Stepping thread: destroys the returned sequences; then release(id) for each. release() may take locks that are held
  // around give_back().
  template <typename Release>
  void collect(Release release);
  // The stepping thread has ended, and no other sequence uses the pool: from now on give_back() destroys the sequence,
  // one at a time.
  void close();

 private:
  struct Returned {
    std::unique_ptr<Sequence> sequence;
    std::uint64_t id = 0;
  };
  std::mutex mutex_;
  std::vector<Returned> back_, collected_;  // collected_: of collect()
  std::size_t expected_ = 0;                // expected or returned, not yet collected
  bool closed_ = false;
};

template <typename Release>
void SequenceReturns::collect(Release release) {
  {
    const std::lock_guard lock(mutex_);
    std::swap(back_, collected_);
    expected_ -= collected_.size();
  }
  for (Returned& each : collected_) {
    each.sequence.reset();
    release(each.id);
  }
  collected_.clear();
}

// The sequence of a finished request, to be written to disk (Request::keep).
class KeptSequence {
 public:
  KeptSequence(std::shared_ptr<const Decoder> decoder, std::unique_ptr<Sequence> sequence,
               std::unique_ptr<Sampler> sampler, SnapshotText text, std::uint64_t id,
               std::shared_ptr<SequenceReturns> returns);
  ~KeptSequence();
  KeptSequence(const KeptSequence&) = delete;
  KeptSequence& operator=(const KeptSequence&) = delete;

  void write(ByteWriter& out) const;  // a snapshot without its checksum; from one thread at a time

 private:
  std::shared_ptr<const Decoder> decoder_;
  std::unique_ptr<Sequence> sequence_;
  std::unique_ptr<Sampler> sampler_;
  SnapshotText text_;
  std::uint64_t id_;  // of the request
  std::shared_ptr<SequenceReturns> returns_;
};

}  // namespace palimpsest
