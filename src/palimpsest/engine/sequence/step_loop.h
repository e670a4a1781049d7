// A step of the model for several sequences; the order of its parts is defined only here. (A text that is read for a
// measurement, without a method: full_reader.h.)
//
//   begin()   per sequence: evicts, takes slots for its next tokens
//   run()     the model's step for all; then per sequence: evicts down to its budget
//
// A failure ends only the sequence that caused it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {

struct StepShare {  // a sequence's part of a step
  Sequence* sequence = nullptr;
  SequenceStep step = {};
  std::span<const float> logits = {};  // result of Sequence::done; valid in `ready`, and until the next step
  std::exception_ptr failure = {};     // if set, the sequence is unusable
};

class StepLoop {
 public:
  explicit StepLoop(std::shared_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}

  // false: failed, see StepShare::failure.
  static bool begin(StepShare& share) noexcept;
  // `shares`: begun, with the same StepResult. Calls ready(span of shares) for each share once, failed or not, before
  // its logits are overwritten: for all together, or, if the step cannot be prepared, one by one.
  template <typename Ready>
  void run(std::span<StepShare* const> shares, Ready ready);
  // begin() and run(); throws the first failure. Returns the logits of all shares, concatenated.
  std::span<const float> run_or_throw(std::span<StepShare* const> shares);

  Decoder& decoder() const { return *decoder_; }
  const std::shared_ptr<Decoder>& shared_decoder() const { return decoder_; }

 private:
  std::exception_ptr prepare(std::span<StepShare* const> shares) noexcept;   // nullptr, or why nothing was written
  std::span<const float> step(std::span<StepShare* const> shares) noexcept;  // logits of all; empty if the model failed

  std::shared_ptr<Decoder> decoder_;
  std::vector<SequenceStep> steps_;
};

template <typename Ready>
void StepLoop::run(std::span<StepShare* const> shares, Ready ready) {
  if (const std::exception_ptr failure = prepare(shares); failure == nullptr) {
    step(shares);
    ready(shares);
  } else if (shares.size() == 1) {
    shares.front()->failure = failure;
    ready(shares);
  } else {  // nothing was written: run each alone to find the one that fails
    for (std::size_t i = 0; i < shares.size(); ++i) run(shares.subspan(i, 1), ready);
  }
}

}  // namespace palimpsest
