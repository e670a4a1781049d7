#include "palimpsest/text/tool_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace palimpsest {
namespace {

using Json = nlohmann::ordered_json;

std::string call_text(const ToolCall& call) {
  return fmt::format("<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>", Json(call.name).dump(),
                     call.arguments.empty() ? "{}" : call.arguments);
}

std::string description(const ChatInput& input) {
  std::string text =
      "You can call functions. These are described between <tools> and </tools>, one JSON object each:\n<tools>\n";
  for (const Tool& tool : input.tools)
    text +=
        Json{{"type", "function"},
             {"function",
              {{"name", tool.name}, {"description", tool.description}, {"parameters", Json::parse(tool.parameters)}}}}
            .dump() +
        "\n";
  return text + "</tools>";
}

constexpr const char* kForm =
    "\nTo call a function, write a JSON object with its name and arguments between <tool_call> and "
    "</tool_call>:\n<tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}\n</tool_call>";

// The system messages, joined, after `text`.
void begin_with(const std::string& text, ChatInput& chat) {
  ChatMessage system{"system", text};
  std::erase_if(chat.messages, [&](const ChatMessage& message) {
    if (message.role != "system") return false;
    system.content.insert(0, message.content + "\n\n");
    return true;
  });
  chat.messages.insert(chat.messages.begin(), std::move(system));
}

void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += "\n";
  text += more;
}

}  // namespace

ChatInput with_tools_described(const ChatInput& input) {
  ChatInput out = input;
  begin_with(description(input), out);
  return out;
}

ChatInput with_tools_as_text(const ChatInput& input) {
  ChatInput out = input;
  out.tools.clear();
  out.messages.clear();
  for (const ChatMessage& message : input.messages) {
    ChatMessage one{message.role, message.content};
    one.reasoning = message.reasoning;
    for (const ToolCall& call : message.tool_calls) append(one.content, call_text(call));
    const bool result = message.role == "tool";
    if (result) {
      one.role = "user";
      one.content = "<tool_response>\n" + message.content + "\n</tool_response>";
    }
    // One message for several results: many templates want alternating roles.
    if (result && !out.messages.empty() && out.messages.back().role == "user")
      append(out.messages.back().content, one.content);
    else
      out.messages.push_back(std::move(one));
  }
  if (!input.tools.empty() && input.tool_choice != ToolChoice::kNone) begin_with(description(input) + kForm, out);
  return out;
}

}  // namespace palimpsest
