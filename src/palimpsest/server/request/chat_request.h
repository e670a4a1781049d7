// What the chats of all APIs share: their tools, calls and prompts.
#pragma once

#include <string>

#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/structured_output.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {

inline constexpr std::size_t kMaxTools = 128;

// A tool as an API has it: texts, and where they are in the request, for errors.
struct ToolInput {
  std::string name, name_field, description;
  const Json* parameters = nullptr;  // JSON Schema; nullptr: none
  std::string parameters_field;
  bool strict = false;
};
// Compiles the schema. Throws ApiError.
void add_tool(const ToolInput& tool, ChatInput& chat);
// Only this tool may be called, and is. `field`: where its name is. Throws ApiError.
void require_tool(const std::string& name, const std::string& field, ChatInput& chat);

// {"city": ...} or the same as text; a cut-off text stays as it is. nullptr: {}.
std::string call_arguments(const Json* arguments);
// Calls without an id get one, results without one belong to the first call that has none yet, and get its name.
void link_calls(std::vector<ChatMessage>& chat);

// A text, or a list of parts with "text" of one of the `types`, which are joined by line breaks, as in llama-server and
// vLLM. Throws ApiError.
std::string read_text_parts(const Json& content, const std::string& field, std::initializer_list<const char*> types);

// Whether the reply continues the last message: `continue_final_message`, or a last message of the assistant without
// calls, unless `add_generation_prompt` is true. Throws ApiError.
void read_continuation(JsonFields& fields, ChatInput& chat);
// The second of these for APIs without such fields.
void continue_last(ChatInput& chat);

// Variables of the chat template. Throws ApiError.
void read_template_variables(const Json* variables, ChatInput& chat);

// The prompt. `output`: of the reply's text; its field becomes "tools" if their grammar is used. `continues`: only the
// next turn of a chat that is in a session. `messages_field`: for errors. Throws ApiError.
ChatPrompt chat_prompt(ChatInput chat, StructuredOutput& output, const ServedModel& model, bool continues,
                       const std::string& messages_field = "messages");

}  // namespace palimpsest
