// The state of a sequence's recurrent layers (short convolutions): what they keep of all tokens that it has read, in
// constant memory. A step reads the state before it and writes its outcomes; the last outcome is the state, unless
// tokens are rejected:
//
//   a step of n tokens    before -> outcome 0                       after the last token
//   ... of which drafts   before -> outcomes 0, 1, ..., n - 1       after each token
//
// Evictions do not change it: it has read the evicted tokens, too.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace palimpsest {

class RecurrentState {
 public:
  explicit RecurrentState(std::size_t floats = 0) : states_(1, std::vector<float>(floats)) {}

  std::size_t floats() const { return states_.front().size(); }  // of all layers; 0: the model has no such layers

  // Before a step: memory for its outcomes; may throw std::bad_alloc, unchanged.
  void reserve(int outcomes);
  // Then: the state that it reads is the present one.
  void begin() noexcept;
  const float* before() const { return states_.front().data(); }
  float* outcome(int index) { return states_[static_cast<std::size_t>(index) + 1].data(); }
  // After the step: it has written the outcome of its last token, or of each.
  void written(int tokens, bool each) noexcept;

  // The newest tokens of the last step are not part of the text: all of them, or if it had an outcome of each, any.
  void reject(int tokens) noexcept;
  // After reject() of all drafts: the first `drafts` are part of it.
  void accept(int drafts) noexcept;

  std::span<const float> now() const { return states_[now_]; }
  void set(std::span<const float> state) noexcept;  // of as many floats
  void clear() noexcept;                            // of an empty text: zeros

  std::size_t bytes() const;

 private:
  std::vector<std::vector<float>> states_;  // before, outcomes
  std::size_t now_ = 0;                     // of states_
  int outcomes_ = 0, tokens_ = 0;           // of the last step
};

}  // namespace palimpsest
