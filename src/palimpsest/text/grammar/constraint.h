// A grammar as a sampler uses it: which tokens may follow, from the start of a text or from a trigger in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/grammar/matcher.h"

namespace palimpsest {

class Vocabulary;
struct SamplerOptions;

class GrammarConstraint {
 public:
  // The vocabulary must outlive it. Throws Error for a bad grammar, or if it does not begin with the options' prefix.
  GrammarConstraint(const SamplerOptions& options, const Vocabulary& vocabulary);

  // A model may have more logits than its vocabulary has tokens.
  bool allows(TokenId token);
  void allowed(std::vector<std::uint8_t>& out);  // [at least tokens] 1 or 0, end tokens included
  void accept(TokenId token);                    // allowed

  // The parse state as numbers, for the same options. restore() throws Error for another grammar's.
  std::vector<std::int32_t> save() const;
  void restore(std::span<const std::int32_t> saved);

 private:
  void look_for_trigger(TokenId token);

  const Vocabulary& vocabulary_;
  std::shared_ptr<const TokenTexts> texts_;
  GrammarMatcher matcher_;
  std::vector<std::string> triggers_;
  bool waiting_ = false;  // for a trigger: every token is allowed
  std::string tail_;      // the end of the text so far, shorter than the longest trigger
};

}  // namespace palimpsest
