// OpenAI's /v1/responses: a request as one for a chat. Its replies: reply_form.h.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

struct ChatOfResponse {
  Json body;      // for /v1/chat/completions, asks the same
  Json messages;  // of it, without `instructions`: those of a response are not those of the next
};

// `previous`: the messages of the response that this one continues, or an empty list. Throws ApiError.
ChatOfResponse chat_of_response(const Json& body, const Json& previous);

// Appends items (of input or output) to a list of messages. `where`: its name in errors. Throws ApiError.
void add_items(const Json& items, const std::string& where, Json& messages);

}  // namespace palimpsest
