#include "palimpsest/server/request/chat_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/server/request/json_schema.h"
#include "palimpsest/text/conversation.h"
#include "palimpsest/text/tool_grammar.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxTools = 128, kMaxToolName = 128;

// Names end up in grammars, and in text that is parsed again.
bool is_tool_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kMaxToolName && std::ranges::all_of(name, allowed);
}

void give_ids(std::vector<ChatMessage>& chat) {
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

// The text to append to a restored chat: the end of the last assistant turn, then the user's turn.
Conversation::Turn next_turn(const ChatInput& input, const ServedModel& model, const std::string& messages_field) {
  if (input.messages.size() != 1 || input.messages.front().role != "user")
    fail_field(
        messages_field,
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

// A grammar for tools and one for the text exclude each other.
void check_output(const ChatInput& chat, StructuredOutput& output) {
  if (chat.tools.empty() || chat.tool_choice == ToolChoice::kNone) return;
  if (!output.grammar.empty() || !output.schema.empty())
    fail_field(output.field, "'{}' with 'tools': give one of them, or no choice of a tool", output.field);
  output.field = "tools";
}

}  // namespace

void read_tool(JsonFields& fields, const char* schema, ChatInput& chat, bool may_be_strict) {
  if (chat.tools.size() >= kMaxTools) fail_field("tools", "'tools' must be a list of at most {}", kMaxTools);
  Tool out{.name = fields.text("name", ""),
           .description = fields.text("description", ""),
           .parameters = kNoParameters,
           .strict = fields.boolean("strict", false) && may_be_strict};
  if (!is_tool_name(out.name)) fields.refuse("name", "must be 1 to {} letters, digits, '_', '-' and '.'", kMaxToolName);
  if (std::ranges::find(chat.tools, out.name, &Tool::name) != chat.tools.end())
    fail_field(fields.path("name"), "two tools have the name '{}'", out.name);
  const Json* const given = fields.take(schema);
  const bool any = given == nullptr || (given->is_structured() && given->empty());
  if (!any) out.parameters = dump(*given);
  const SchemaOptions options{.mode = out.strict ? SchemaMode::kStrict : SchemaMode::kLenient,
                              .prefix = prefix_of_tool(chat.tools.size()),
                              .object = true};
  out.compiled = compiled_schema(any ? Json::parse(kNoParameters) : *given, fields.path(schema), options);
  chat.tools.push_back(std::move(out));
}

void require_tool(JsonFields& fields, ChatInput& chat) {
  chat.function = fields.text("name", "");
  if (std::ranges::find(chat.tools, chat.function, &Tool::name) == chat.tools.end())
    fail_field(fields.path("name"), "'tools' has no function '{}'", chat.function);
}

void read_tool_choice(JsonFields& fields, void (*require)(JsonFields& choice, ChatInput& chat), ChatInput& chat) {
  const Json* choice = fields.take("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  chat.tool_choice = *choice == "none" ? ToolChoice::kNone : ToolChoice::kRequired;
  if (*choice == "none") return;
  if (chat.tools.empty()) fields.refuse("tool_choice", "needs 'tools'");
  if (*choice == "required" || *choice == "any") return;
  if (!choice->is_object()) fields.refuse("tool_choice", "must be auto, none, required or the name of a function");
  fields.object("tool_choice", [&](JsonFields& of) {
    if (of.text("type", "function") != "function") of.refuse("type", "must be function");
    require(of, chat);
  });
}

void read_tool_calls(JsonFields& fields, ChatMessage& message) {
  fields.list("tool_calls", [&](JsonFields& call) {
    if (call.text("type", "function") != "function") call.refuse("type", "must be function");
    call.ignore({"index"});
    call.need_object("function", [&](JsonFields& function) {
      function.ignore({"index"});
      message.tool_calls.push_back({.id = call.text("id", ""),
                                    .name = function.text("name", ""),
                                    .arguments = call_arguments(function.take("arguments"))});
    });
  });
}

std::string call_arguments(const Json* arguments) {
  if (arguments == nullptr) return "{}";
  std::string text = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  return text.find_first_not_of(" \t\r\n") == std::string::npos ? "{}" : text;
}

void link_calls(std::vector<ChatMessage>& chat) {
  give_ids(chat);
  // The template may want the name of the function that a result belongs to.
  std::map<std::string, std::string> names;
  for (ChatMessage& message : chat) {
    for (const ToolCall& call : message.tool_calls) names[call.id] = call.name;
    if (const auto named = names.find(message.tool_call_id); message.role == "tool" && message.name.empty())
      if (named != names.end()) message.name = named->second;
  }
}

std::string read_text_parts(JsonFields& fields, const char* name, std::initializer_list<const char*> types) {
  const Json& content = fields.need(name);
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fields.refuse(name, "must be a string or a list of text parts");
  std::vector<std::string> texts;
  fields.list(name, [&](JsonFields& part) {
    const std::string type = part.text("type", "");
    if (std::ranges::find(types, type) == types.end())
      part.refuse("type", "is '{}': supported are {}", type, fmt::join(types, ", "));
    texts.push_back(part.text(type == "refusal" ? "refusal" : "text", ""));
    part.ignore({"cache_control", "annotations", "citations", "logprobs"});
  });
  return fmt::format("{}", fmt::join(texts, "\n"));
}

void continue_last(ChatInput& chat) {
  const ChatMessage& last = chat.messages.back();
  chat.continues_last = last.role == "assistant" && last.tool_calls.empty();
}

void read_continuation(JsonFields& fields, ChatInput& chat) {
  const bool given = fields.take("continue_final_message") != nullptr;
  const bool wanted = fields.boolean("continue_final_message", false);
  const bool begins = fields.boolean("add_generation_prompt", false);  // true by default, unless the last is continued
  if (wanted && begins)
    fail_field("continue_final_message",
               "'continue_final_message' and 'add_generation_prompt' exclude each other: set one of them to false");
  continue_last(chat);
  if (wanted && !chat.continues_last)
    fail_field("continue_final_message",
               "'continue_final_message' needs a last message of the assistant, without calls");
  if (begins || (given && !wanted)) chat.continues_last = false;
  chat.add_assistant = chat.continues_last || fields.boolean("add_generation_prompt", true);
}

void read_template_variables(JsonFields& fields, ChatInput& chat) {
  const Json* variables = fields.take("chat_template_kwargs");
  if (variables == nullptr) return;
  if (!variables->is_object()) fields.refuse("chat_template_kwargs", "must be a JSON object");
  for (const auto& [name, value] : variables->items()) {
    static const std::set<std::string> kOurs = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
    if (kOurs.contains(name))
      fail_field("chat_template_kwargs." + name, "'chat_template_kwargs.{}' is set by the server", name);
    chat.variables[name] = value.dump();
  }
}

ChatPrompt chat_prompt(ChatInput chat, StructuredOutput& output, const ServedModel& model, bool continues,
                       const std::string& messages_field) {
  if (model.chat_template == nullptr)
    fail_field(messages_field,
               "this model has no chat template: restart the server with --chat-template, or use /v1/completions");
  check_output(chat, output);
  if (const std::size_t n = chat.messages.size();
      n > 1 && chat.continues_last && chat.messages[n - 2].role == "assistant")
    fail_field(messages_field, "'{}' ends with two messages of the assistant: the reply can continue one",
               messages_field);
  if (model.thinking) chat.variables.emplace("enable_thinking", *model.thinking ? "true" : "false");
  if (model.reasoning_in_content) chat.reasoning_in_content = true;
  chat.json_schema = output.schema;
  chat.json_grammar = output.schema_grammar;
  try {
    ChatPrompt out = model.chat_template->apply(chat);
    if (!continues) return out;
    Conversation::Turn turn = next_turn(chat, model, messages_field);
    out.text = std::move(turn.text);
    out.breaks = std::move(turn.breaks);
    return out;
  } catch (const SchemaError& error) {
    fail_field(error.path(), "{}: {}", error.path(), error.what());
  } catch (const Error& error) {
    fail_field(messages_field, "{}", error.what());
  }
}

}  // namespace palimpsest
