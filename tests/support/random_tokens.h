// Random token ids.
#pragma once

#include <random>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest::testing {

inline std::vector<TokenId> random_tokens(std::size_t count, unsigned seed, int vocabulary = 96) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& each : tokens) each = static_cast<TokenId>(random() % static_cast<unsigned>(vocabulary));
  return tokens;
}

// The same after token 1, a beginning-of-text token in many vocabularies.
inline std::vector<TokenId> random_text(std::size_t count, unsigned seed, int vocabulary) {
  std::vector<TokenId> tokens = random_tokens(count - 1, seed, vocabulary);
  tokens.insert(tokens.begin(), 1);
  return tokens;
}

}  // namespace palimpsest::testing
