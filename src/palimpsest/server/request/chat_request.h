// What the chats of all APIs share: their tools, calls and prompts.
#pragma once

#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/structured_output.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {

// The functions below throw ApiError.

// A tool: "name", "description", its JSON Schema in the field `schema`, and "strict" (ignored unless `may_be_strict`).
void read_tool(JsonFields& fields, const char* schema, ChatInput& chat, bool may_be_strict = true);
// {"name": NAME}: only this tool may be called, and is.
void require_tool(JsonFields& fields, ChatInput& chat);
// The field "tool_choice": "auto", "none", "required" or "any"; or an object that names a tool, for `require`.
void read_tool_choice(JsonFields& fields, void (*require)(JsonFields& choice, ChatInput& chat), ChatInput& chat);
// The field "tool_calls": [{"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}, ...]
void read_tool_calls(JsonFields& fields, ChatMessage& message);

// {"city": ...} or the same as text; a cut-off text stays as it is. nullptr: {}.
std::string call_arguments(const Json* arguments);
// Calls without an id get one, results without one belong to the first call that has none yet, and get its name.
void link_calls(std::vector<ChatMessage>& chat);

// The field `name`: a text, or a list of parts with "text" of one of the `types`, which are joined by line breaks, as
// in llama-server and vLLM.
std::string read_text_parts(JsonFields& fields, const char* name, std::initializer_list<const char*> types);

// Whether the reply continues the last message: `continue_final_message`, or a last message of the assistant without
// calls, unless `add_generation_prompt` is true.
void read_continuation(JsonFields& fields, ChatInput& chat);
// The second of these for APIs without such fields.
void continue_last(ChatInput& chat);

// Variables of the chat template: the field "chat_template_kwargs".
void read_template_variables(JsonFields& fields, ChatInput& chat);

// The prompt. `output`: of the reply's text; its field becomes "tools" if their grammar is used. `continues`: only the
// next turn of a chat that is in a session. `messages_field`: for errors.
ChatPrompt chat_prompt(ChatInput chat, StructuredOutput& output, const ServedModel& model, bool continues,
                       const std::string& messages_field = "messages");

}  // namespace palimpsest
