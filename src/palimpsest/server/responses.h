// OpenAI's /v1/responses: a request as one for a chat. Its replies: reply_form.h.
#pragma once

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// The body for /v1/chat/completions that asks the same. Throws ApiError.
Json chat_of_response(const Json& body);

}  // namespace palimpsest
