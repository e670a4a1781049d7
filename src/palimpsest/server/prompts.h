// Prompts in a request: a string, a list of strings, a list of tokens, or a list of lists of tokens.
#pragma once

#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/served_model.h"

namespace palimpsest {

// Several prompts, not one.
inline bool is_list_of_prompts(const Json& prompts) {
  return prompts.is_array() && (prompts.empty() || !prompts.front().is_number());
}

// The tokens of one prompt, at least one. `continues`: the text continues a session, so it gets no BOS and may be
// empty. `field`: its name in errors. Throws ApiError.
std::vector<TokenId> read_prompt(const Json& prompt, const char* field, const ServedModel& model, bool continues);

}  // namespace palimpsest
