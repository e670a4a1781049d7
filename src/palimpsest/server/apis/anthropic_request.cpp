#include "palimpsest/server/apis/anthropic_request.h"

#include <algorithm>
#include <utility>

#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

// Texts of one message are separated by line breaks.
void add_line(const std::string& text, std::string& out) {
  if (!out.empty() && !text.empty()) out += '\n';
  out += text;
}

bool has_cache_control(const Json& block) {
  return block.is_object() && block.contains("cache_control") && !block["cache_control"].is_null();
}

std::string read_text_block(JsonFields& block) {
  block.need("text");
  block.ignore({"cache_control", "citations"});
  return block.text("text", "");
}

[[noreturn]] void refuse_block(const JsonFields& block, const std::string& type, const char* supported) {
  if (type == "image" || type == "document")
    block.refuse("type", "is '{}': {}s are not supported, give text", type, type);
  block.refuse("type", "is '{}': supported are {}", type, supported);
}

// A text, or a list of blocks of type text. `kept`: whether a block is used.
std::string read_text_blocks(JsonFields& fields, const char* name, bool (*kept)(const std::string&)) {
  const Json* content = fields.take(name);
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fields.refuse(name, "must be a string or a list of text blocks");
  std::string out;
  fields.list(name, [&](JsonFields& block) {
    if (const std::string type = block.text("type", ""); type != "text") refuse_block(block, type, "text");
    if (const std::string text = read_text_block(block); kept(text)) add_line(text, out);
  });
  return out;
}

bool is_any_text(const std::string&) {
  return true;
}

// Claude Code's first block has a hash that differs in each request: no two requests would begin alike.
bool is_no_billing_header(const std::string& text) {
  return !text.starts_with("x-anthropic-billing-header:");
}

ChatMessage read_tool_result(JsonFields& block) {
  block.ignore({"cache_control", "toolset_name"});
  ChatMessage out{.role = "tool", .content = {}};
  out.tool_call_id = block.text("tool_use_id", "");
  if (out.tool_call_id.empty()) block.refuse("tool_use_id", "is missing");
  out.content = read_text_blocks(block, "content", is_any_text);
  // Templates have no field for it.
  if (block.boolean("is_error", false)) out.content.insert(0, "Error: ");
  return out;
}

ToolCall read_tool_use(JsonFields& block) {
  block.ignore({"cache_control", "caller", "toolset_name"});
  ToolCall out{.id = block.text("id", ""), .name = block.text("name", ""), .arguments = {}};
  if (out.name.empty()) block.refuse("name", "is missing");
  const Json* input = block.take("input");
  if (input != nullptr && !input->is_object()) block.refuse("input", "must be a JSON object");
  out.arguments = call_arguments(input);
  return out;
}

// A block of `message`; results of tools are messages of their own.
void read_block(JsonFields& block, ChatMessage& message, std::vector<ChatMessage>& results) {
  const std::string type = block.text("type", "");
  const bool user = message.role == "user", assistant = message.role == "assistant";
  if (type == "text") {
    add_line(read_text_block(block), message.content);
  } else if (user && type == "tool_result") {
    results.push_back(read_tool_result(block));
  } else if (assistant && type == "tool_use") {
    message.tool_calls.push_back(read_tool_use(block));
  } else if (assistant && type == "thinking") {
    add_line(block.text("thinking", ""), message.reasoning);
    block.ignore({"signature", "cache_control"});
  } else if (assistant && type == "redacted_thinking") {  // encrypted: only Anthropic can read it
    block.ignore({"data", "cache_control"});
  } else {
    refuse_block(block, type,
                 assistant ? "text, tool_use, thinking and redacted_thinking"
                 : user    ? "text and tool_result"
                           : "text");
  }
}

// Messages of one role in a row are one message: chat templates may require that roles alternate.
void append_message(ChatMessage message, std::vector<ChatMessage>& chat) {
  if (chat.empty() || chat.back().role != message.role || message.role == "system")
    return chat.push_back(std::move(message));
  ChatMessage& last = chat.back();
  add_line(message.content, last.content);
  add_line(message.reasoning, last.reasoning);
  std::ranges::move(message.tool_calls, std::back_inserter(last.tool_calls));
}

void read_anthropic_message(JsonFields& fields, std::vector<ChatMessage>& chat) {
  ChatMessage message{.role = fields.text("role", ""), .content = {}};
  if (message.role != "user" && message.role != "assistant" && message.role != "system")
    fields.refuse("role", "must be user, assistant or system");
  const Json& content = fields.need("content");
  if (!content.is_string() && !content.is_array()) fields.refuse("content", "must be a string or a list of blocks");
  std::vector<ChatMessage> results;
  if (content.is_string())
    message.content = content.get<std::string>();
  else
    fields.list("content", [&](JsonFields& block) { read_block(block, message, results); });
  const bool only_results = !results.empty() && message.content.empty();
  std::ranges::move(results, std::back_inserter(chat));
  if (!only_results) append_message(std::move(message), chat);
}

void read_anthropic_tool(JsonFields& fields, ChatInput& chat) {
  if (const std::string type = fields.text("type", "custom"); type != "custom")
    fields.refuse("type", "is '{}': tools of Anthropic's servers and clients are not supported, custom is", type);
  fields.ignore({"cache_control", "input_examples", "allowed_callers", "defer_loading", "eager_input_streaming"});
  read_tool(fields, "input_schema", chat);
}

// {"type": "auto", "any", "none", or "tool" with "name"; "disable_parallel_tool_use": bool}
void read_anthropic_choice(JsonFields& choice, ChatInput& chat) {
  const std::string type = choice.text("type", "");
  choice.ignore({"name"});
  chat.parallel_tool_calls = !choice.boolean("disable_parallel_tool_use", false);
  if (type == "auto") return;
  if (type != "none" && type != "any" && type != "tool") choice.refuse("type", "must be auto, any, tool or none");
  chat.tool_choice = type == "none" ? ToolChoice::kNone : ToolChoice::kRequired;
  if (type == "none") return;
  if (chat.tools.empty()) fail_field("tool_choice", "'tool_choice' needs 'tools'");
  if (type == "tool") require_tool(choice, chat);
}

// {"type": "enabled", "budget_tokens": n}, "adaptive" or "disabled". Without it, the template decides.
void read_thinking(JsonFields& thinking, ChatInput& chat) {
  thinking.ignore({"budget_tokens", "display"});  // a template has no budget
  const std::string type = thinking.text("type", "");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    thinking.refuse("type", "must be enabled, adaptive or disabled");
  chat.variables["enable_thinking"] = type == "disabled" ? "false" : "true";
}

// {"type": "json_schema", "schema": {...}}
void read_json_format(JsonFields& format, StructuredOutput& output) {
  if (format.text("type", "") != "json_schema") format.refuse("type", "must be json_schema");
  format.ignore({"name", "description"});
  read_schema(format.need("schema"), format.path("schema"), true, output);
}

// "output_config", and the earlier name of its format.
void read_output_config(JsonFields& fields, CompletionInput& input) {
  const auto read_format = [&](JsonFields& format) { read_json_format(format, input.output); };
  fields.object("output_config", [&](JsonFields& config) {
    if (const std::string effort = config.text("effort", ""); !effort.empty())
      input.chat->variables["reasoning_effort"] = Json(effort).dump();
    if (config.take("format") != nullptr && fields.take("output_format") != nullptr)
      fields.refuse("output_format", "and 'output_config.format' mean the same: give one");
    config.object("format", read_format);
  });
  fields.object("output_format", read_format);
}

// Whether a block of the system prompt, or a tool, is marked.
bool marks_system_prompt(const Json& body) {
  for (const char* name : {"system", "tools"})
    if (const auto list = body.find(name); list != body.end() && list->is_array())
      if (std::ranges::any_of(*list, has_cache_control)) return true;
  return false;
}

// The longest time of a block's cache_control.
void read_block_pins(const Json& body, Request& out) {
  const auto read = [&](const Json& list, const std::string& where) {
    for (std::size_t i = 0; list.is_array() && i < list.size(); ++i)
      if (has_cache_control(list[i])) {
        JsonFields block(list[i], fmt::format("{}[{}].", where, i));
        read_cache_control(block, out);
      }
  };
  for (const char* name : {"system", "tools"})
    if (const auto list = body.find(name); list != body.end()) read(*list, name);
  const Json& messages = body.at("messages");
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (const auto content = messages[i].find("content"); content != messages[i].end())
      read(*content, fmt::format("messages[{}].content", i));
}

}  // namespace

CompletionInput read_anthropic(const Json& body, bool counts, const ServedModel& model) {
  JsonFields fields(body);
  CompletionInput input(model);
  CompletionRequest& request = input.request;
  ChatInput& chat = input.chat.emplace();
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  fields.ignore({"metadata", "service_tier", "container", "context_management", "inference_geo", "diagnostics", "speed",
                 "user_profile_id", "workspace_id", "betas"});
  if (const Json* servers = fields.take("mcp_servers"); servers != nullptr && *servers != Json::array())
    fields.refuse("mcp_servers", "is not supported: the server calls no tools, give them in 'tools'");
  if (!counts && fields.take("max_tokens") == nullptr)
    fields.refuse("max_tokens", "is missing: give the max tokens of the answer");
  request.request.max_tokens = fields.integer("max_tokens", model.default_max_tokens, 1, kMaxAnswerTokens);
  if (const std::string text = read_text_blocks(fields, "system", is_no_billing_header); !text.empty())
    chat.messages.push_back({.role = "system", .content = text});
  if (const Json& messages = fields.need("messages"); !messages.is_array() || messages.empty())
    fields.refuse("messages", "must be a list of at least one");
  fields.list("messages", [&](JsonFields& message) { read_anthropic_message(message, chat.messages); });
  link_calls(chat.messages);
  continue_last(chat);
  fields.list("tools", [&](JsonFields& tool) { read_anthropic_tool(tool, chat); });
  fields.object("tool_choice", [&](JsonFields& choice) { read_anthropic_choice(choice, chat); });
  read_template_variables(fields, chat);
  fields.object("thinking", [&](JsonFields& thinking) { read_thinking(thinking, chat); });
  read_output_config(fields, input);
  read_stop(fields, "stop_sequences", request.stop);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  read_cache_fields(fields, model, input);
  fields.end();
  read_block_pins(body, request.request);
  input.marks_system = request.restore.empty() && marks_system_prompt(body);
  return input;
}

}  // namespace palimpsest
