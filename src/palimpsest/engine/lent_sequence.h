// Sequences in the hands of other threads than the stepping one.
//
//   stepping thread                               another thread
//   a request ends: KeptSequence            ->    write(): reads tables and pages, which nobody changes any more
//   collect(): its pages go back            <-    the last owner lets it go
//
// Pages belong to a pool that only the stepping thread may use (cache/pages.h): so that thread alone destroys a
// sequence, and what admission promised to it counts until then.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/engine/snapshot.h"

namespace palimpsest {

// Where lent sequences come back to. Shared by the stepping thread and all who hold one.
class SequenceReturns {
 public:
  void expect_one();  // room for one more, so that it can come back whatever happens
  // From any thread; once for each that was expected.
  void give_back(std::unique_ptr<Sequence> sequence, std::size_t promised) noexcept;
  // The stepping thread: destroys what came back; the sum of what had been promised to them.
  std::size_t collect();
  // The stepping thread is no more, nor has anybody else a sequence of its pool: from now on each is destroyed as it
  // comes, one at a time.
  void close();

 private:
  struct Lent {
    std::unique_ptr<Sequence> sequence;
    std::size_t promised = 0;
  };
  std::mutex mutex_;
  std::vector<Lent> back_;
  std::size_t expected_ = 0;  // lent, or back and not collected
  bool closed_ = false;
};

// A sequence that has ended well, to be written to disk (Request::keep).
class KeptSequence {
 public:
  KeptSequence(std::shared_ptr<const Decoder> decoder, std::unique_ptr<Sequence> sequence,
               std::unique_ptr<Sampler> sampler, SnapshotText text, std::size_t promised,
               std::shared_ptr<SequenceReturns> returns);
  ~KeptSequence();
  KeptSequence(const KeptSequence&) = delete;
  KeptSequence& operator=(const KeptSequence&) = delete;

  void write(ByteWriter& out) const;  // a snapshot's bytes but the checksum; from one thread at a time

 private:
  std::shared_ptr<const Decoder> decoder_;
  std::unique_ptr<Sequence> sequence_;
  std::unique_ptr<Sampler> sampler_;
  SnapshotText text_;
  std::size_t promised_;
  std::shared_ptr<SequenceReturns> returns_;
};

}  // namespace palimpsest
