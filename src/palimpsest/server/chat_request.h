// The fields of a chat: messages, tools, the template's variables.
#pragma once

#include "palimpsest/server/fields.h"
#include "palimpsest/server/output_shape.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {

// Reads messages, tools, tool_choice, parallel_tool_calls, chat_template_kwargs. Sets `shape.field` to "tools" if their
// grammar is to be used. Throws ApiError.
ChatInput read_chat(Fields& fields, const ServedModel& model, OutputShape& shape);

// The prompt. `continues`: only the next turn of a chat that is in a session. Throws ApiError.
ChatPrompt chat_prompt(const ChatInput& chat, const ServedModel& model, bool continues);

}  // namespace palimpsest
