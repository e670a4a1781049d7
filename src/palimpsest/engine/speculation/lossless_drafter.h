// Lossless mode (docs/decisions/0054-lossless.md; VeriCache, arXiv 2605.17613): the same model drafts with a small
// cache, which a method keeps within its budget, and verifies with a full one.
//
//   full session    reads the prompt, then a token and its drafts in one step; the text is that of this session alone
//   small session   made from the full cache: shares its pages, evicts down to the budget; decodes the drafts
//
// After each step the small cache forgets rejected drafts, and gets the rows of the accepted ones as the full cache has
// them: those that it computed itself attended to fewer tokens. A prompt of more than kTail tokens makes it anew, so
// what was evicted may come back.
#pragma once

#include <memory>
#include <string>

#include "palimpsest/engine/speculation/model_drafter.h"

namespace palimpsest {

class LosslessDrafter final : public ModelDrafter {
 public:
  // Tokens of a prompt that the small session reads itself, so that the policy sees their queries: at least so many.
  static constexpr std::size_t kTail = 64;

  // `full`: the session that verifies, which outlives this; `small`: the options of the small one. Both have the same
  // decoder, cache types and pages. Throws Error.
  LosslessDrafter(Session& full, const SessionOptions& small, float min_probability = kMinProbability);

 protected:
  std::span<const float> read(std::span<const TokenId> tokens) override;

 private:
  void read_from_full(std::span<const TokenId> tokens);

  Session& full_;
  std::size_t tail_;
  bool shares_;          // the policy needs no more of a prompt than its last tokens
  Position copied_ = 0;  // rows of tokens before this one are those of the full cache
};

// The options of the session that verifies: of method full, with drafts.
SessionOptions full_beside(const SessionOptions& small, int draft_max);

}  // namespace palimpsest
