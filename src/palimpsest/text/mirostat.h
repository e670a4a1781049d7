// Mirostat (arXiv 2007.14966), versions 1 and 2: holds the surprise of the sampled tokens near a target. The same
// computation as libllama's, whose state cannot be read; this one can be saved.
#pragma once

#include <llama.h>

#include <cstdint>
#include <random>

namespace palimpsest {

class Mirostat {
 public:
  // `version`: 1 or 2. `tokens`: of the vocabulary.
  Mirostat(int version, float tau, float eta, int tokens, std::uint32_t seed)
      : version_(version), tau_(tau), eta_(eta), tokens_(tokens), mu_(2 * tau), random_(seed) {}
  void apply(llama_token_data_array& array);  // selects a token
  float mu() const { return mu_; }            // max surprise
  // `draws`: among several candidates; a single one consumes no random number.
  void resume(std::uint32_t seed, float mu, std::uint64_t draws);
  void set_mu(float mu) { mu_ = mu; }

 private:
  int draw(const llama_token_data_array& array);

  int version_;
  float tau_, eta_;
  int tokens_;
  float mu_;
  std::mt19937 random_;
};

}  // namespace palimpsest
