#include "palimpsest/server/apis/openai_chat.h"

#include <algorithm>
#include <set>
#include <utility>

#include "palimpsest/server/request/chat_request.h"

namespace palimpsest {
namespace {

ChatMessage read_message(JsonFields& fields) {
  ChatMessage message;
  message.role = fields.text("role", "");
  if (message.role == "developer") message.role = "system";  // OpenAI's newer name
  static const std::set<std::string> kRoles = {"system", "user", "assistant", "tool"};
  if (!kRoles.contains(message.role)) fields.refuse("role", "must be system, developer, user, assistant or tool");
  const bool assistant = message.role == "assistant";
  if (assistant) {
    read_tool_calls(fields, message);
    message.reasoning = fields.text("reasoning_content", "");
    fields.ignore({"audio", "annotations", "function_call", "reasoning"});
  }
  if (message.role == "tool") {
    message.tool_call_id = fields.text("tool_call_id", "");
    message.name = fields.text("name", "");
  }
  fields.ignore({"name", "refusal"});
  if (!assistant || fields.take("content") != nullptr)
    message.content = read_text_parts(fields, "content", {"text", "refusal"});
  return message;
}

void read_function(JsonFields& choice, ChatInput& chat) {
  choice.need_object("function", [&](JsonFields& function) { require_tool(function, chat); });
}

}  // namespace

ChatInput read_chat(JsonFields& fields) {
  ChatInput chat;
  if (const Json& messages = fields.need("messages"); !messages.is_array() || messages.empty())
    fields.refuse("messages", "must be a list of at least one");
  fields.list("messages", [&](JsonFields& message) { chat.messages.push_back(read_message(message)); });
  link_calls(chat.messages);
  fields.list("tools", [&](JsonFields& tool) {
    if (const std::string type = tool.text("type", ""); type != "function")
      tool.refuse("type", "is '{}': function is supported", type);
    tool.ignore({"cache_control"});
    tool.need_object("function", [&](JsonFields& function) { read_tool(function, "parameters", chat); });
  });
  read_tool_choice(fields, read_function, chat);
  read_continuation(fields, chat);
  const std::string format = fields.text("reasoning_format", "auto");  // llama-server's
  if (format != "auto" && format != "none" && format != "deepseek")
    fields.refuse("reasoning_format", "must be auto, deepseek or none");
  chat.reasoning_in_content = format == "none";
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_template_variables(fields, chat);
  if (const Json* effort = fields.take("reasoning_effort")) chat.variables["reasoning_effort"] = effort->dump();
  return chat;
}

}  // namespace palimpsest
