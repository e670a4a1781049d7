// Options of sampling; names and defaults are llama.cpp's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct GrammarRules;

struct SamplerOptions {
  float temperature = 0.8F;                                                  // 0: greedy
  int top_k = 40;                                                            // 0: off
  float top_p = 0.95F;                                                       // 1: off
  float min_p = 0.05F;                                                       // 0: off
  float repeat_penalty = 1.0F, frequency_penalty = 0, presence_penalty = 0;  // 1, 0, 0: off
  int penalty_last_n = 64;
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to the logits before all else; -100 and less: never
  std::uint32_t seed = 0xFFFFFFFFU;                        // 0xFFFFFFFF: from the clock
  std::string grammar;                                     // GBNF; empty: none, or `compiled`
  // A grammar compiled once for many samplers, which share it: compile_grammar(). It goes before `grammar`.
  std::shared_ptr<const GrammarRules> compiled = {};
  std::string grammar_prefix = {};  // the grammar's text begins with this, which the prompt ends with
  // Not empty: the text is free until the first of these; the grammar matches from there on.
  std::vector<std::string> grammar_triggers = {};
  std::vector<TokenId> grammar_tokens = {};  // control tokens whose text the grammar matches

  bool constrained() const { return compiled != nullptr || !grammar.empty(); }
};

}  // namespace palimpsest
