// The requests of OpenAI's /v1/completions and /v1/chat/completions, with the fields of vLLM and llama-server.
#pragma once

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

// Throws ApiError that names the invalid field.
CompletionInput read_openai(const Json& body, bool chat, const ServedModel& model);

}  // namespace palimpsest
