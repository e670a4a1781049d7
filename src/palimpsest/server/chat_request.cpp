#include "palimpsest/server/chat_request.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/server/json_schema.h"
#include "palimpsest/text/conversation.h"
#include "palimpsest/text/tool_grammar.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxTools = 128, kMaxNameOfTool = 64;

// A string, a list of text parts, or null.
std::string read_content(const Json* content, const std::string& where, bool may_be_absent) {
  if (content == nullptr && may_be_absent) return {};
  if (content != nullptr && content->is_string()) return content->get<std::string>();
  if (content == nullptr || !content->is_array())
    fail_field(where + ".content", "'{}.content' must be a string or a list of text parts", where);
  std::string text;
  for (const Json& part : *content) {
    Fields of(part, where + ".content.");
    const std::string type = of.text("type", "");
    if (type == "refusal") {
      text += of.text("refusal", "");
    } else if (type == "text") {
      text += of.text("text", "");
    } else {
      fail_field(where + ".content", "'{}.content' may have parts of type text only", where);
    }
    of.ignore({"cache_control", "annotations"});
    of.end();
  }
  return text;
}

// Names end up in grammars, and in text that is parsed again.
std::string read_name(Fields& fields) {
  const std::string name = fields.text("name", "");
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  if (name.empty() || name.size() > kMaxNameOfTool || !std::ranges::all_of(name, allowed))
    fail_field(fields.path("name"), "'{}' must be 1 to {} letters, digits, '_', '-' and '.'", fields.path("name"),
               kMaxNameOfTool);
  return name;
}

std::vector<ToolCall> read_calls(const Json* calls, const std::string& where) {
  std::vector<ToolCall> out;
  if (calls == nullptr) return out;
  if (!calls->is_array()) fail_field(where, "'{}' must be a list", where);
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    Fields fields((*calls)[i], at + ".");
    if (const std::string type = fields.text("type", "function"); type != "function")
      fail_field(at + ".type", "'{}.type' must be function", at);
    ToolCall call{.id = fields.text("id", ""), .name = {}, .arguments = {}};
    fields.ignore({"index"});
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(at + ".function", "'{}.function' is missing", at);
    Fields of(*function, at + ".function.");
    call.name = of.text("name", "");
    const Json* arguments = of.take("arguments");
    call.arguments = arguments == nullptr     ? "{}"
                     : arguments->is_string() ? arguments->get<std::string>()
                                              : arguments->dump();
    // Arguments of a call that was cut off are no JSON: the template gets them as text.
    if (call.arguments.find_first_not_of(" \t\r\n") == std::string::npos) call.arguments = "{}";
    of.end();
    fields.end();
    out.push_back(std::move(call));
  }
  return out;
}

// Calls without an id get one, and results without one belong to the first call that has none yet.
void name_calls(std::vector<ChatMessage>& chat) {
  std::size_t made = 0;
  std::vector<std::string> open;
  for (ChatMessage& message : chat) {
    for (ToolCall& call : message.tool_calls) {
      if (call.id.empty()) call.id = fmt::format("call{:05}", made++);
      open.push_back(call.id);
    }
    if (message.role != "tool") continue;
    if (message.tool_call_id.empty() && !open.empty()) message.tool_call_id = open.front();
    std::erase(open, message.tool_call_id);
  }
}

std::vector<ChatMessage> read_messages(const Json* messages) {
  if (messages == nullptr) fail_field("messages", "'messages' is missing");
  if (!messages->is_array() || messages->empty()) fail_field("messages", "'messages' must be a list of at least one");
  std::vector<ChatMessage> chat;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    Fields fields((*messages)[i], where + ".");
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
    message.content = read_content(fields.take("content"), where, assistant);
    fields.end();
    chat.push_back(std::move(message));
  }
  name_calls(chat);
  // The template may want the name of the function that a result belongs to.
  std::map<std::string, std::string> names;
  for (ChatMessage& message : chat) {
    for (const ToolCall& call : message.tool_calls) names[call.id] = call.name;
    if (const auto named = names.find(message.tool_call_id); message.role == "tool" && message.name.empty())
      if (named != names.end()) message.name = named->second;
  }
  return chat;
}

std::vector<Tool> read_tools(const Json* tools) {
  std::vector<Tool> out;
  if (tools == nullptr) return out;
  if (!tools->is_array() || tools->size() > kMaxTools)
    fail_field("tools", "'tools' must be a list of at most {}", kMaxTools);
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    Fields fields((*tools)[i], where + ".");
    if (const std::string type = fields.text("type", ""); type != "function")
      fail_field(where + ".type", "'{}.type' is '{}': function is supported", where, type);
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(where + ".function", "'{}.function' is missing", where);
    fields.ignore({"cache_control"});
    fields.end();
    Fields of(*function, where + ".function.");
    Tool tool{.name = read_name(of), .description = of.text("description", ""), .parameters = {}};
    tool.strict = of.boolean("strict", false);
    const Json* parameters = of.take("parameters");
    const bool any = parameters == nullptr || (parameters->is_structured() && parameters->empty());
    tool.parameters = any ? kNoParameters : dump(*parameters);
    const SchemaOptions options{
        .mode = tool.strict ? SchemaMode::kStrict : SchemaMode::kLenient, .prefix = prefix_of_tool(i), .object = true};
    tool.compiled =
        compiled_schema(any ? Json::parse(kNoParameters) : *parameters, where + ".function.parameters", options);
    of.end();
    if (!names.insert(tool.name).second)
      fail_field(where + ".function.name", "two tools have the name '{}'", tool.name);
    out.push_back(std::move(tool));
  }
  return out;
}

// "auto", "none", "required", or {"type": "function", "function": {"name": NAME}}.
void read_tool_choice(const Json* choice, ChatInput& out) {
  if (choice == nullptr) return;
  const std::string word = choice->is_string() ? choice->get<std::string>() : "";
  if (word == "auto") return;
  if (word == "none") {
    out.tool_choice = ToolChoice::kNone;
    return;
  }
  if (out.tools.empty()) fail_field("tool_choice", "'tool_choice' needs 'tools'");
  out.tool_choice = ToolChoice::kRequired;
  if (word == "required" || word == "any") return;
  if (!choice->is_object())
    fail_field("tool_choice", "'tool_choice' must be auto, none, required or the name of a function");
  Fields fields(*choice, "tool_choice.");
  if (fields.text("type", "function") != "function")
    fail_field("tool_choice.type", "'tool_choice.type' must be function");
  const Json* function = fields.take("function");
  if (function == nullptr) fail_field("tool_choice.function", "'tool_choice.function' is missing");
  fields.end();
  Fields of(*function, "tool_choice.function.");
  out.function = of.text("name", "");
  of.end();
  if (std::ranges::find(out.tools, out.function, &Tool::name) == out.tools.end())
    fail_field("tool_choice.function.name", "'tools' has no function '{}'", out.function);
}

void read_variables(const Json* variables, ChatInput& out) {
  if (variables == nullptr) return;
  if (!variables->is_object()) fail_field("chat_template_kwargs", "'chat_template_kwargs' must be a JSON object");
  for (const auto& [name, value] : variables->items()) {
    static const std::set<std::string> kOurs = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
    if (kOurs.contains(name))
      fail_field("chat_template_kwargs." + name, "'chat_template_kwargs.{}' is set by the server", name);
    out.variables[name] = value.dump();
  }
}

// The text to append to a restored chat: the end of the last assistant turn, then the user's turn.
Conversation::Turn next_turn(const ChatInput& input, const ServedModel& model) {
  if (input.messages.size() != 1 || input.messages.front().role != "user")
    fail_field(
        "messages",
        "a chat that continues a session takes one message, the user's next: earlier messages are in the session");
  if (!input.tools.empty()) fail_field("tools", "a chat that continues a session has the tools of its beginning");
  Conversation conversation(model.chat_template, "");
  conversation.user("x");
  conversation.assistant("y");
  auto turn = conversation.user(input.messages.front().content);
  if (turn.restart)
    fail_field("session", "this model's chat template rewrites earlier messages: chats cannot continue from a session");
  return turn;
}

}  // namespace

ChatInput read_chat(Fields& fields, const ServedModel& model, OutputShape& shape) {
  ChatInput input;
  input.messages = read_messages(fields.take("messages"));
  input.tools = read_tools(fields.take("tools"));
  read_tool_choice(fields.take("tool_choice"), input);
  input.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_variables(fields.take("chat_template_kwargs"), input);
  if (const Json* effort = fields.take("reasoning_effort")) input.variables["reasoning_effort"] = effort->dump();
  if (model.chat_template == nullptr)
    fail_field("messages",
               "this model has no chat template: restart the server with --chat-template, or use /v1/completions");
  input.json_schema = shape.schema;
  input.json_grammar = shape.schema_grammar;
  if (input.tools.empty() || input.tool_choice == ToolChoice::kNone) return input;
  if (!shape.grammar.empty() || !shape.schema.empty())
    fail_field(shape.field, "'{}' with 'tools': give one of them, or \"tool_choice\": \"none\"", shape.field);
  shape.field = "tools";
  return input;
}

ChatPrompt chat_prompt(const ChatInput& chat, const ServedModel& model, bool continues) {
  try {
    ChatPrompt out = model.chat_template->apply(chat);
    if (!continues) return out;
    Conversation::Turn turn = next_turn(chat, model);
    out.text = std::move(turn.text);
    out.breaks = std::move(turn.breaks);
    return out;
  } catch (const SchemaError& error) {
    fail_field(error.path(), "{}: {}", error.path(), error.what());
  } catch (const Error& error) {
    fail_field("messages", "{}", error.what());
  }
}

}  // namespace palimpsest
