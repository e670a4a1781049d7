#include "palimpsest/engine/lockstep.h"

#include <cassert>

#include "palimpsest/core/error.h"

namespace palimpsest {

Lockstep::Lockstep(std::shared_ptr<Decoder> decoder, const SessionOptions& options, int sequences)
    : decoder_(std::move(decoder)) {
  if (sequences < 1) fail("a batch of {} sequences: give at least 1", sequences);
  if (!options.method.cache && sequences > 1)
    fail("method {} has no cache and reads its window anew: it runs one sequence at a time", options.method.name);
  for (int i = 0; i < sequences; ++i) sessions_.push_back(std::make_unique<Session>(decoder_, options));
  steps_.resize(sessions_.size());
}

std::span<const float> Lockstep::decode(std::span<const TokenId> tokens) {
  assert(tokens.size() == sessions_.size());
  if (sessions_.size() == 1) return sessions_.front()->decode(tokens.front());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Sequence& sequence = sessions_[i]->sequence();
    sequence.make_room(1, Moment::kDecode, false);
    steps_[i] = sequence.begin(tokens.subspan(i, 1), false);
  }
  const auto logits = decoder_->step(steps_);
  for (auto& session : sessions_) session->sequence().end(1, Moment::kDecode);
  return logits;
}

}  // namespace palimpsest
