// Samples the next token from logits: libllama's samplers (sampler_chain.h), under a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/sampler_options.h"

namespace palimpsest {

class Vocabulary;

class Sampler {
 public:
  // `vocabulary` may be nullptr without a grammar (synthetic models). The memory of a vocabulary's size is allocated by
  // the first sample().
  Sampler(const SamplerOptions& options, const Vocabulary* vocabulary, int vocabulary_size);
  ~Sampler();
  TokenId sample(std::span<const float> logits);  // samples and accepts
  void accept(TokenId prompt_token);              // for penalties: a token that was not sampled
  std::uint32_t seed() const;                     // the seed in use
  const SamplerOptions& options() const;          // with the seed in use
  bool stops_at(TokenId token) const;             // SamplerOptions::stop_tokens

  // The state that a new sampler with the same options needs to continue identically. Its size does not grow with the
  // text.
  struct State {
    std::vector<TokenId> history = {};       // the last tokens, as many as penalties and DRY use
    std::vector<std::int32_t> grammar = {};  // the grammar's parse state; see sampler.cpp
    // Random draws: among several tokens, with a single candidate, of XTC.
    std::uint64_t draws = 0, single_candidate = 0, xtc_draws = 0;
    std::uint64_t tokens = 0;  // sampled, up to min_tokens
    float mu = 0;              // of Mirostat
    bool operator==(const State&) const = default;
  };
  State state() const;
  void resume(std::uint32_t seed, const State& state);  // of a new sampler; throws Error for another grammar's state

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
