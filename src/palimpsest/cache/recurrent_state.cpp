#include "palimpsest/cache/recurrent_state.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace palimpsest {

void RecurrentState::reserve(int outcomes) {
  const std::size_t wanted = static_cast<std::size_t>(outcomes) + 1;
  while (floats() > 0 && states_.size() < wanted) states_.emplace_back(floats());
}

void RecurrentState::begin() noexcept {
  if (now_ != 0) std::swap(states_.front(), states_[now_]);
  now_ = 0;
  outcomes_ = tokens_ = 0;
}

void RecurrentState::written(int tokens, bool each) noexcept {
  if (floats() == 0) return;
  tokens_ = tokens;
  outcomes_ = each ? tokens : 1;
  now_ = static_cast<std::size_t>(outcomes_);
  assert(now_ < states_.size());
}

void RecurrentState::reject(int tokens) noexcept {
  if (now_ == 0 || tokens == 0) return;
  assert(tokens == tokens_ || (outcomes_ == tokens_ && tokens < tokens_));
  now_ = static_cast<std::size_t>(tokens_ - tokens);
}

void RecurrentState::accept(int drafts) noexcept {
  if (outcomes_ == 0) return;
  assert(drafts < outcomes_);
  now_ = static_cast<std::size_t>(drafts) + 1;
}

void RecurrentState::set(std::span<const float> state) noexcept {
  assert(state.size() == floats());
  std::ranges::copy(state, states_.front().begin());
  now_ = 0;
  outcomes_ = tokens_ = 0;
}

void RecurrentState::clear() noexcept {
  std::ranges::fill(states_.front(), 0.0F);
  now_ = 0;
  outcomes_ = tokens_ = 0;
}

std::size_t RecurrentState::bytes() const {
  return states_.size() * floats() * sizeof(float);
}

}  // namespace palimpsest
