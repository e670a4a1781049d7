// Prompts in a request: a text, a list of tokens, a list of both, {"prompt_string": "text"},
// {"content": [{"type": "text", "text": "..."}]}; or a list of these.
#pragma once

#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/served_model.h"

namespace palimpsest {

// Several prompts, not one: a list without numbers.
bool is_list_of_prompts(const Json& prompts);

// The tokens of one prompt, at least one. `continues`: the text continues a session, so it gets no BOS and may be
// empty. `field`: its name in errors. Throws ApiError.
std::vector<TokenId> read_prompt(const Json& prompt, const char* field, const ServedModel& model, bool continues);

}  // namespace palimpsest
