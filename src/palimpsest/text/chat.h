// A chat as plain data: messages, tools, the prompt that a chat template makes of them, the reply.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // a JSON object
  bool operator==(const ToolCall&) const = default;
};

struct ChatMessage {
  std::string role, content;  // "system", "user", "assistant", "tool"
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {}, name = {};  // of the call that a message with role "tool" answers
};

struct CompiledSchema;

struct Tool {
  std::string name, description;
  std::string parameters;  // JSON Schema of the arguments, as the prompt shows it
  bool strict = false;     // what cannot be enforced is an error
  // `parameters` compiled, with prefix_of_tool() of the tool's number; nullptr: they are compiled leniently.
  std::shared_ptr<const CompiledSchema> compiled = nullptr;
};

enum class ToolChoice { kAuto, kNone, kRequired };

struct ChatInput {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools = {};
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string function = {};  // with kRequired: the only tool that may be called; empty: any
  bool parallel_tool_calls = true;
  std::string json_schema = {};                       // of the reply's content; empty: any text
  std::string json_grammar = {};                      // its grammar, with the prefix kReplyPrefix
  std::map<std::string, std::string> variables = {};  // of the template, beside the usual ones; values are JSON
  bool add_assistant = true;                          // the prompt ends where the assistant's reply begins
  bool reasoning_in_content = false;                  // the reply's reasoning is not taken out
  bool continues_last = false;                        // the reply continues the last message, which is the assistant's
};

class ReplyFormat;

struct ChatPrompt {
  std::string text;  // control tokens are in their text form; begins without the BOS that the tokenizer adds
  // Offsets in `text` that no control token crosses, for Vocabulary::tokenize: texts of messages have none.
  std::vector<std::size_t> breaks = {};
  // Constrains the reply; empty: not constrained. See SamplerOptions.
  std::string grammar = {}, grammar_prefix = {};
  std::vector<std::string> grammar_triggers = {};
  std::vector<TokenId> reply_tokens = {};               // control tokens that are part of the reply's text
  std::vector<std::string> stop = {};                   // further ends of the reply
  std::shared_ptr<const ReplyFormat> format = nullptr;  // nullptr: the reply is content only
};

// What is new in a reply since the last one.
struct ReplyDelta {
  struct Call {
    std::size_t index = 0;
    std::string id, name;   // in the first delta of a call
    std::string arguments;  // appended to the earlier ones
  };
  std::string content, reasoning;
  std::vector<Call> calls;
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

}  // namespace palimpsest
