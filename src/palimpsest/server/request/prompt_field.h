// Prompts in a request: a text, a list of tokens, a list of both, {"prompt_string": "text"},
// {"content": [{"type": "text", "text": "..."}]}; or a list of these.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/served_model.h"

namespace palimpsest {

// The prompt or prompts in the field `name`, and the path of each. Throws ApiError.
std::vector<std::pair<std::string, const Json*>> list_prompts(const JsonFields& fields, const char* name,
                                                              const Json& prompts);

// The tokens of one prompt, at least one. `continues`: the text continues a session, so it gets no BOS and may be
// empty. `field`: its name in errors. Throws ApiError.
std::vector<TokenId> read_prompt(const Json& prompt, const std::string& field, const ServedModel& model,
                                 bool continues);

}  // namespace palimpsest
