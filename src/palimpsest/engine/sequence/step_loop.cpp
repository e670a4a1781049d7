#include "palimpsest/engine/sequence/step_loop.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

bool StepLoop::begin(StepShare& share) noexcept {
  share.step = {};
  share.logits = {};
  try {
    share.step = share.sequence->next();
  } catch (...) {
    share.failure = std::current_exception();
    return false;
  }
  return true;
}

std::exception_ptr StepLoop::prepare(std::span<StepShare* const> shares) noexcept {
  assert(!shares.empty());
  try {
    steps_.clear();
    for (const StepShare* share : shares) steps_.push_back(share->step);
    decoder_->prepare(steps_);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::span<const float> StepLoop::run_or_throw(std::span<StepShare* const> shares) {
  const auto check = [](const StepShare* share) {
    if (share->failure) std::rethrow_exception(share->failure);
  };
  for (StepShare* share : shares) {
    share->failure = {};
    begin(*share);
    check(share);
  }
  if (const std::exception_ptr failure = prepare(shares)) std::rethrow_exception(failure);
  const auto logits = step(shares);
  std::ranges::for_each(shares, check);
  return logits;
}

std::span<const float> StepLoop::step(std::span<StepShare* const> shares) noexcept {
  std::span<const float> logits;
  std::size_t rows = 0;
  const auto rows_of = [](const SequenceStep& step) { return step.all_logits ? step.tokens.size() : std::size_t{1}; };
  try {
    logits = decoder_->run();
  } catch (...) {  // all caches are partly written
    for (StepShare* share : shares) share->failure = std::current_exception();
    return {};
  }
  for (const StepShare* share : shares) rows += rows_of(share->step);
  const auto all = logits;
  const std::size_t width = logits.size() / rows;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    StepShare* const share = shares[i];
    const auto mine = logits.first(rows_of(share->step) * width);
    logits = logits.subspan(mine.size());
    try {
      const std::size_t tokens = decoder_->check(i);
      share->logits = share->sequence->done(mine.first(std::min(mine.size(), tokens * width)));
    } catch (...) {
      share->failure = std::current_exception();
    }
  }
  return all;
}

}  // namespace palimpsest
