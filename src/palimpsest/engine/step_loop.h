// A step of the model for some sequences, the only place that writes out its order:
//
//   begin()   each by itself: evicts what is due, takes slots for its next tokens
//   run()     all together: the model's step; then each by itself: back to its budget
//
// A failure is that of the sequence it came from; the others' step goes on unharmed.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence.h"

namespace palimpsest {

struct StepShare {  // a sequence's part of a step
  Sequence* sequence = nullptr;
  Work work = {};
  std::span<const float> logits = {};  // to go on with (Sequence::done); valid in `ready`, and until the next step
  std::exception_ptr failure = {};     // the sequence is of no use any more
};

class StepLoop {
 public:
  explicit StepLoop(std::shared_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}

  // false: StepShare::failure.
  static bool begin(StepShare& share) noexcept;
  // The shares that began, of sequences whose keys are rotated alike (AttentionRule::rotation). Each is handed to
  // `ready`, failed or not, before the logits of another may take the place of its own.
  template <typename Ready>
  void run(std::span<StepShare* const> shares, Ready ready);
  // begin() and run() for those who have one failure in common: throws it. The logits of all shares, one behind the
  // other.
  std::span<const float> run_or_throw(std::span<StepShare* const> shares);

  Decoder& decoder() const { return *decoder_; }

 private:
  bool prepare(std::span<StepShare* const> shares) noexcept;  // false: the failure is the first share's, if it is alone
  std::span<const float> step(std::span<StepShare* const> shares) noexcept;  // of all of them, as far as none failed

  std::shared_ptr<Decoder> decoder_;
  std::vector<SequenceStep> steps_;
};

template <typename Ready>
void StepLoop::run(std::span<StepShare* const> shares, Ready ready) {
  if (prepare(shares)) {
    step(shares);
    for (StepShare* share : shares) ready(*share);
  } else if (shares.size() == 1) {
    ready(*shares.front());
  } else {  // nothing was written: whoever fails alone is the one
    for (std::size_t i = 0; i < shares.size(); ++i) run(shares.subspan(i, 1), ready);
  }
}

}  // namespace palimpsest
