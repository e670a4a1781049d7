// The requests of Anthropic's /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

// `counts`: /v1/messages/count_tokens, which needs no max_tokens. Throws ApiError.
CompletionInput read_anthropic(const Json& body, bool counts, const ServedModel& model);

}  // namespace palimpsest
