// Options of sampling; names, defaults and order are llama.cpp's. The samplers are libllama's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct GrammarRules;

inline constexpr std::uint32_t kRandomSeed = 0xFFFFFFFFU;  // a seed from the clock

// In llama.cpp's default order.
enum class SamplerKind { kPenalties, kDry, kTopNSigma, kTopK, kTypicalP, kTopP, kMinP, kXtc, kTemperature };

struct SamplerOptions {
  float temperature = 0.8F;  // 0 and less: greedy, the likeliest token after bias, penalties and DRY; no other sampler
  int top_k = 40;            // the k likeliest tokens; 0: off
  float top_p = 0.95F;       // nucleus sampling, arXiv 1904.09751; 1: off
  float min_p = 0.05F;       // min probability relative to the likeliest token, arXiv 2407.01082; 0: off
  float typical_p = 1;       // locally typical sampling, arXiv 2202.00666; 1: off
  float top_n_sigma = -1;    // tokens within n standard deviations of the max logit, arXiv 2411.07641; 0 and less: off
  int min_keep = 0;          // typical_p, top_p, min_p and XTC keep as many candidates
  float xtc_probability = 0, xtc_threshold = 0.1F;  // exclude top choices; 0, or a threshold above 0.5: off
  float dynatemp_range = 0, dynatemp_exponent = 1;  // temperature +- range by entropy, arXiv 2309.02772; 0: off
  int mirostat = 0;  // 1 or 2: Mirostat, arXiv 2007.14966, instead of top_n_sigma to XTC and the random draw; 0: off
  float mirostat_tau = 5, mirostat_eta = 0.1F;  // target surprise in bits, learning rate

  // Penalties of tokens among the last `penalty_last_n` of prompt and text.
  float repeat_penalty = 1.0F, frequency_penalty = 0, presence_penalty = 0;  // 1, 0, 0: off
  int penalty_last_n = 64;                                                   // 0: off; -1: the trained context
  // DRY: penalty of tokens that continue a repetition of a length of at least dry_allowed_length:
  // dry_multiplier * dry_base ^ (length - dry_allowed_length). Needs a vocabulary.
  float dry_multiplier = 0, dry_base = 1.75F;  // 0: off
  int dry_allowed_length = 2;
  int dry_penalty_last_n = 64;  // tokens that are searched for repetitions; 0: off; -1: the trained context
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // repetitions do not extend over these texts

  // The order of the samplers, each at most once; the others are off. logit_bias comes first, a random draw last.
  std::vector<SamplerKind> samplers = {SamplerKind::kPenalties, SamplerKind::kDry,      SamplerKind::kTopNSigma,
                                       SamplerKind::kTopK,      SamplerKind::kTypicalP, SamplerKind::kTopP,
                                       SamplerKind::kMinP,      SamplerKind::kXtc,      SamplerKind::kTemperature};
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to the logits before all else; -100 and less: never
  long long min_tokens = 0;               // no end-of-text token and no stop token is sampled before as many tokens
  std::vector<TokenId> stop_tokens = {};  // end the text as end-of-text tokens do, also where those are ignored

  std::uint32_t seed = kRandomSeed;
  std::string grammar = {};  // GBNF; empty: none, or `compiled`
  // A grammar compiled once for many samplers, which share it: compile_grammar(). It goes before `grammar`.
  std::shared_ptr<const GrammarRules> compiled = {};
  std::string grammar_prefix = {};  // the grammar's text begins with this, which the prompt ends with
  // Not empty: the text is free until the first of these; the grammar matches from there on.
  std::vector<std::string> grammar_triggers = {};
  std::vector<TokenId> grammar_tokens = {};  // control tokens whose text the grammar matches

  bool constrained() const { return compiled != nullptr || !grammar.empty(); }
  bool greedy() const { return temperature <= 0; }
};

}  // namespace palimpsest
