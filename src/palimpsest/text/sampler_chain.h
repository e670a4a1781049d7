// libllama's samplers in llama.cpp's order, without grammars. Its state can be saved and resumed: random draws are
// counted, and drawn again, as libllama's generators cannot be read.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "palimpsest/text/mirostat.h"
#include "palimpsest/text/sampler_options.h"

namespace palimpsest {

class SamplerChain {
 public:
  // Valid `options`, with a seed that is not from the clock and windows that are no -1. `dry`:
  // Vocabulary::dry_sampler(); `tokens`: logits.
  SamplerChain(const SamplerOptions& options, const llama_sampler* dry, int tokens);
  static bool uses_dry(const SamplerOptions& options);
  // How many of the last tokens penalties and DRY remember.
  static std::size_t window(const SamplerOptions& options);

  // Removes candidates and selects one of the others: array.selected; -1 if logits are NaN.
  void apply(llama_token_data_array& array);
  void accept(TokenId token);  // of the prompt or the text: for penalties and DRY

  struct State {
    std::uint64_t draws = 0, single_candidate = 0;  // applications with several candidates at the end, with one
    std::uint64_t xtc_draws = 0;                    // of XTC's own generator
    float mu = 0;                                   // Mirostat's; 0: without Mirostat
    bool operator==(const State&) const = default;
  };
  static State initial(const SamplerOptions& options);
  State state() const;
  // Continues from `state`, without its accepted tokens.
  // Requires: a new chain, with the same options but for the seed.
  void resume(std::uint32_t seed, const State& state);
  // Mirostat's part of the state, which a token that is not accepted leaves as it is.
  float mu() const { return mirostat_ ? mirostat_->mu() : 0; }
  void set_mu(float mu) {
    if (mirostat_) mirostat_->set_mu(mu);
  }

 private:
  struct Free {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
  };
  using Owned = std::unique_ptr<llama_sampler, Free>;
  void add(SamplerKind kind, const llama_sampler* dry);
  void penalize(llama_sampler* penalties, llama_token_data_array& array);
  void seed(std::uint32_t seed);

  SamplerOptions options_;
  int tokens_;
  struct Stage {
    SamplerKind kind;
    Owned sampler;
  };
  std::vector<Stage> stages_;
  Owned bias_, last_;                 // nullptr: none. `last_`: greedy or random draws
  std::optional<Mirostat> mirostat_;  // instead of `last_`
  std::vector<TokenId> recent_;       // a ring of the tokens that penalties remember
  std::size_t oldest_ = 0;
  std::vector<llama_token_data> penalized_;
  State state_;  // without mu
};

}  // namespace palimpsest
