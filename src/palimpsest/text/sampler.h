// From logits to the next token, by libllama's sampler chain; the words and defaults are llama.cpp's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

class Vocabulary;

struct SamplerOptions {
  float temperature = 0.8F;                                                  // 0: greedy
  int top_k = 40;                                                            // 0: off
  float top_p = 0.95F;                                                       // 1: off
  float min_p = 0.05F;                                                       // 0: off
  float repeat_penalty = 1.0F, frequency_penalty = 0, presence_penalty = 0;  // 1, 0, 0: off
  int penalty_last_n = 64;
  std::uint32_t seed = 0xFFFFFFFFU;  // 0xFFFFFFFF: from the clock
  std::string grammar;               // GBNF; empty: none
};

class Sampler {
 public:
  // `vocabulary` may be null when no grammar is given (synthetic models).
  Sampler(const SamplerOptions& options, const Vocabulary* vocabulary, int vocabulary_size);
  ~Sampler();
  TokenId sample(std::span<const float> logits);  // chooses and accepts
  void accept(TokenId prompt_token);              // for penalties: a token that was not sampled
  std::uint32_t seed() const;                     // the one in use
  const SamplerOptions& options() const;          // with the seed in use

  // What a sampler with the same options has to go through to stand where this one does.
  struct State {
    std::vector<TokenId> prompt, sampled;  // what was accepted; nothing if neither penalties nor a grammar look back
    std::uint64_t draws = 0, certain = 0;  // of the random numbers: among several tokens, where only one was left
  };
  State state() const;
  void resume(std::uint32_t seed, const State& state);  // of a fresh sampler

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
