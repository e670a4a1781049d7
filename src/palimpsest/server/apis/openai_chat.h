// The chat of OpenAI's /v1/chat/completions: messages, tools, tool_choice, chat_template_kwargs.
#pragma once

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/text/chat.h"

namespace palimpsest {

ChatInput read_chat(JsonFields& fields);  // throws ApiError

}  // namespace palimpsest
