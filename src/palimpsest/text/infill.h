// Prompts that ask a model to fill in the middle of a text, with the vocabulary's control tokens for that.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct InfillInput {
  std::string prefix, suffix;
  std::string begun = {};                                       // of the middle: the answer continues it
  std::vector<std::pair<std::string, std::string>> files = {};  // name and text of other files of the project
};

// The names of missing control tokens: "prefix", "suffix", "middle"; empty: the vocabulary can fill in.
std::vector<std::string> missing_infill_tokens(const Vocabulary& vocabulary);
// [files] PREFIX prefix begun SUFFIX suffix MIDDLE, as llama-server has it. Throws Error if tokens are missing.
std::vector<TokenId> infill_prompt(const Vocabulary& vocabulary, const InfillInput& input);

}  // namespace palimpsest
