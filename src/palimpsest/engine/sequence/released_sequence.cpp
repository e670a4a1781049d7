#include "palimpsest/engine/sequence/released_sequence.h"

#include <utility>

namespace palimpsest {

void SequenceReturns::expect_one() {
  const std::lock_guard lock(mutex_);
  for (auto* each : {&back_, &collected_}) each->reserve(expected_ + 1);
  ++expected_;
}

void SequenceReturns::give_back(std::unique_ptr<Sequence> sequence, std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_)
    sequence.reset();
  else
    back_.push_back({std::move(sequence), id});
}

void SequenceReturns::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  back_.clear();
}

KeptSequence::KeptSequence(std::shared_ptr<const Decoder> decoder, std::unique_ptr<Sequence> sequence,
                           std::unique_ptr<Sampler> sampler, SnapshotText text, std::uint64_t id,
                           std::shared_ptr<SequenceReturns> returns)
    : decoder_(std::move(decoder)),
      sequence_(std::move(sequence)),
      sampler_(std::move(sampler)),
      text_(std::move(text)),
      id_(id),
      returns_(std::move(returns)) {
  returns_->expect_one();
}

KeptSequence::~KeptSequence() {
  returns_->give_back(std::move(sequence_), id_);
}

void KeptSequence::write(ByteWriter& out) const {
  serialize_snapshot(out, decoder_->model(), *sequence_, sampler_.get(), text_);
}

}  // namespace palimpsest
