#include "palimpsest/server/apis/openai_chat.h"

#include <algorithm>
#include <set>
#include <utility>

#include "palimpsest/server/request/chat_request.h"

namespace palimpsest {
namespace {

std::vector<ToolCall> read_calls(const Json* calls, const std::string& where) {
  std::vector<ToolCall> out;
  if (calls == nullptr) return out;
  if (!calls->is_array()) fail_field(where, "'{}' must be a list", where);
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    JsonFields fields((*calls)[i], at + ".");
    if (const std::string type = fields.text("type", "function"); type != "function")
      fail_field(at + ".type", "'{}.type' must be function", at);
    ToolCall call{.id = fields.text("id", ""), .name = {}, .arguments = {}};
    fields.ignore({"index"});
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(at + ".function", "'{}.function' is missing", at);
    fields.end();
    JsonFields of(*function, at + ".function.");
    call.name = of.text("name", "");
    call.arguments = call_arguments(of.take("arguments"));
    of.end();
    out.push_back(std::move(call));
  }
  return out;
}

ChatMessage read_message(const Json& object, const std::string& where) {
  JsonFields fields(object, where + ".");
  ChatMessage message;
  message.role = fields.text("role", "");
  if (message.role == "developer") message.role = "system";  // OpenAI's newer name
  static const std::set<std::string> kRoles = {"system", "user", "assistant", "tool"};
  if (!kRoles.contains(message.role))
    fail_field(where + ".role", "'{}.role' must be system, developer, user, assistant or tool", where);
  const bool assistant = message.role == "assistant";
  if (assistant) {
    message.tool_calls = read_calls(fields.take("tool_calls"), where + ".tool_calls");
    message.reasoning = fields.text("reasoning_content", "");
    fields.ignore({"audio", "annotations", "function_call", "reasoning"});
  }
  if (message.role == "tool") {
    message.tool_call_id = fields.text("tool_call_id", "");
    message.name = fields.text("name", "");
  }
  fields.ignore({"name", "refusal"});
  const Json* content = fields.take("content");
  const std::string field = where + ".content";
  if (content != nullptr)
    message.content = read_text_parts(*content, field, {"text", "refusal"});
  else if (!assistant)
    fail_field(field, "'{}' must be a string or a list of text parts", field);
  fields.end();
  return message;
}

std::vector<ChatMessage> read_messages(const Json* messages) {
  if (messages == nullptr) fail_field("messages", "'messages' is missing");
  if (!messages->is_array() || messages->empty()) fail_field("messages", "'messages' must be a list of at least one");
  std::vector<ChatMessage> chat;
  for (std::size_t i = 0; i < messages->size(); ++i)
    chat.push_back(read_message((*messages)[i], fmt::format("messages[{}]", i)));
  link_calls(chat);
  return chat;
}

void read_tools(const Json* tools, ChatInput& chat) {
  if (tools == nullptr) return;
  if (!tools->is_array()) fail_field("tools", "'tools' must be a list of at most {}", kMaxTools);
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    JsonFields fields((*tools)[i], where + ".");
    if (const std::string type = fields.text("type", ""); type != "function")
      fail_field(where + ".type", "'{}.type' is '{}': function is supported", where, type);
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(where + ".function", "'{}.function' is missing", where);
    fields.ignore({"cache_control"});
    fields.end();
    JsonFields of(*function, where + ".function.");
    add_tool({.name = of.text("name", ""),
              .name_field = of.path("name"),
              .description = of.text("description", ""),
              .parameters = of.take("parameters"),
              .parameters_field = of.path("parameters"),
              .strict = of.boolean("strict", false)},
             chat);
    of.end();
  }
}

// "auto", "none", "required", or {"type": "function", "function": {"name": NAME}}.
void read_tool_choice(const Json* choice, ChatInput& chat) {
  if (choice == nullptr) return;
  const std::string word = choice->is_string() ? choice->get<std::string>() : "";
  if (word == "auto") return;
  if (word == "none") {
    chat.tool_choice = ToolChoice::kNone;
    return;
  }
  if (chat.tools.empty()) fail_field("tool_choice", "'tool_choice' needs 'tools'");
  chat.tool_choice = ToolChoice::kRequired;
  if (word == "required" || word == "any") return;
  if (!choice->is_object())
    fail_field("tool_choice", "'tool_choice' must be auto, none, required or the name of a function");
  JsonFields fields(*choice, "tool_choice.");
  if (fields.text("type", "function") != "function")
    fail_field("tool_choice.type", "'tool_choice.type' must be function");
  const Json* function = fields.take("function");
  if (function == nullptr) fail_field("tool_choice.function", "'tool_choice.function' is missing");
  fields.end();
  JsonFields of(*function, "tool_choice.function.");
  require_tool(of.text("name", ""), of.path("name"), chat);
  of.end();
}

}  // namespace

ChatInput read_chat(JsonFields& fields) {
  ChatInput chat;
  chat.messages = read_messages(fields.take("messages"));
  read_tools(fields.take("tools"), chat);
  read_tool_choice(fields.take("tool_choice"), chat);
  read_continuation(fields, chat);
  const std::string format = fields.text("reasoning_format", "auto");  // llama-server's
  if (format != "auto" && format != "none" && format != "deepseek")
    fail_field("reasoning_format", "'reasoning_format' must be auto, deepseek or none");
  chat.reasoning_in_content = format == "none";
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_template_variables(fields.take("chat_template_kwargs"), chat);
  if (const Json* effort = fields.take("reasoning_effort")) chat.variables["reasoning_effort"] = effort->dump();
  return chat;
}

}  // namespace palimpsest
