#include "palimpsest/engine/lent_sequence.h"

#include <utility>

namespace palimpsest {

void SequenceReturns::expect_one() {
  const std::lock_guard lock(mutex_);
  back_.reserve(expected_ + 1);
  ++expected_;
}

void SequenceReturns::give_back(std::unique_ptr<Sequence> sequence, std::size_t reserved) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_)
    sequence.reset();
  else
    back_.push_back({std::move(sequence), reserved});
}

std::size_t SequenceReturns::collect() {
  const std::lock_guard lock(mutex_);
  std::size_t reserved = 0;
  for (const Lent& each : back_) reserved += each.reserved;
  expected_ -= back_.size();
  back_.clear();
  return reserved;
}

void SequenceReturns::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  back_.clear();
}

KeptSequence::KeptSequence(std::shared_ptr<const Decoder> decoder, std::unique_ptr<Sequence> sequence,
                           std::unique_ptr<Sampler> sampler, SnapshotText text, std::size_t reserved,
                           std::shared_ptr<SequenceReturns> returns)
    : decoder_(std::move(decoder)),
      sequence_(std::move(sequence)),
      sampler_(std::move(sampler)),
      text_(std::move(text)),
      reserved_(reserved),
      returns_(std::move(returns)) {
  returns_->expect_one();
}

KeptSequence::~KeptSequence() {
  returns_->give_back(std::move(sequence_), reserved_);
}

void KeptSequence::write(ByteWriter& out) const {
  serialize_snapshot(out, decoder_->model(), *sequence_, sampler_.get(), text_);
}

}  // namespace palimpsest
