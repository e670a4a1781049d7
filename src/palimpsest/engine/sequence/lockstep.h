// A static batch: sequences of one method that decode one token each in every step, as in the papers' benchmarks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/session.h"

namespace palimpsest {

class Lockstep {
 public:
  Lockstep(std::shared_ptr<Decoder> decoder, const SessionOptions& options, int sequences);  // throws Error

  int sequences() const { return static_cast<int>(sessions_.size()); }
  // Each has its own prompt: session(i).prefill().
  Session& session(int i) { return *sessions_[static_cast<std::size_t>(i)]; }
  const Session& session(int i) const { return *sessions_[static_cast<std::size_t>(i)]; }
  // `tokens`: one per sequence. Returns logits [sequences][vocabulary].
  std::span<const float> decode(std::span<const TokenId> tokens);
  const Decoder& decoder() const { return loop_.decoder(); }

 private:
  StepLoop loop_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<StepShare> shares_;
  std::vector<StepShare*> all_;
};

}  // namespace palimpsest
