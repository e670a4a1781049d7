// Proposes the next tokens of a text, for the target model to verify in one step.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // The text's next tokens: the prompt, then those that were sampled.
  virtual void append(std::span<const TokenId> tokens) = 0;
  // Up to `max` tokens that may follow; valid until the next draft().
  virtual std::span<const TokenId> draft(int max) = 0;
};

// Prompt lookup (llama.cpp's ngram drafts; Saxena, "Prompt lookup decoding"): searches the text for its last tokens,
// and proposes what followed them there. The longest match counts, of equal ones the newest.
class LookupDrafter final : public Drafter {
 public:
  static constexpr int kMinMatch = 2, kMaxMatch = 4;  // tokens
  static constexpr std::size_t kMaxText = 1 << 15;    // tokens of the text that are searched: the newest

  void append(std::span<const TokenId> tokens) override;
  std::span<const TokenId> draft(int max) override;

 private:
  std::vector<TokenId> text_, drafts_;
};

}  // namespace palimpsest
