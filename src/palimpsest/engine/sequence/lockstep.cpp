#include "palimpsest/engine/sequence/lockstep.h"

#include <cassert>

#include "palimpsest/core/error.h"

namespace palimpsest {

Lockstep::Lockstep(std::shared_ptr<Decoder> decoder, const SessionOptions& options, int sequences) : loop_(decoder) {
  if (sequences < 1) fail("a batch of {} sequences: give at least 1", sequences);
  PlanTarget target = plan_target(*decoder, options);
  target.shares_steps = sequences > 1;
  const auto plan = std::make_shared<MethodPlan>(options.method, std::move(target));
  for (int i = 0; i < sequences; ++i) sessions_.push_back(std::make_unique<Session>(decoder, options, plan));
  for (auto& session : sessions_) shares_.push_back({.sequence = &session->sequence()});
  for (StepShare& share : shares_) all_.push_back(&share);
}

std::span<const float> Lockstep::decode(std::span<const TokenId> tokens) {
  assert(tokens.size() == sessions_.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) shares_[i].sequence->read(tokens[i]);
  return loop_.run_or_throw(all_);
}

}  // namespace palimpsest
