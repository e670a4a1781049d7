#include "palimpsest/engine/generation/token_loop.h"

namespace palimpsest {

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::kEnd:
      return "end";
    case Finish::kLength:
      return "length";
    case Finish::kStopped:
      return "stop";
    case Finish::kCancelled:
      return "cancelled";
    case Finish::kDeadline:
      return "deadline";
    case Finish::kFailed:
      break;
  }
  return "failed";
}

void TokenLoop::sample(std::span<const float> row) noexcept {
  if (next_is_given()) return;
  try {
    sampled_ = sampler_->sample(row);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

TokenId TokenLoop::next_token(std::span<const float> row) {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (sampled_) return *std::exchange(sampled_, std::nullopt);
  if (!next_is_given()) return sampler_->sample(row);
  const TokenId token = options_.given[static_cast<std::size_t>(tokens_)];
  sampler_->accept(token);
  return token;
}

}  // namespace palimpsest
