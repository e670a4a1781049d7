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
  if (block.take("text") == nullptr) fail_field(block.path("text"), "'{}' is missing", block.path("text"));
  block.ignore({"cache_control", "citations"});
  return block.text("text", "");
}

[[noreturn]] void refuse_block(const JsonFields& block, const std::string& type, const char* supported) {
  const std::string field = block.path("type");
  if (type == "image" || type == "document")
    fail_field(field, "'{}' is '{}': {}s are not supported, give text", field, type, type);
  fail_field(field, "'{}' is '{}': supported are {}", field, type, supported);
}

// A text, or a list of blocks of type text. `kept`: whether a block is used.
std::string read_text_blocks(const Json& content, const std::string& where, bool (*kept)(const std::string&)) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail_field(where, "'{}' must be a string or a list of text blocks", where);
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    JsonFields block(content[i], fmt::format("{}[{}].", where, i));
    if (const std::string type = block.text("type", ""); type != "text") refuse_block(block, type, "text");
    const std::string text = read_text_block(block);
    block.end();
    if (kept(text)) add_line(text, out);
  }
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
  if (out.tool_call_id.empty()) fail_field(block.path("tool_use_id"), "'{}' is missing", block.path("tool_use_id"));
  if (const Json* content = block.take("content"))
    out.content = read_text_blocks(*content, block.path("content"), is_any_text);
  // Templates have no field for it.
  if (block.boolean("is_error", false)) out.content.insert(0, "Error: ");
  return out;
}

ToolCall read_tool_use(JsonFields& block) {
  block.ignore({"cache_control", "caller", "toolset_name"});
  ToolCall out{.id = block.text("id", ""), .name = block.text("name", ""), .arguments = {}};
  if (out.name.empty()) fail_field(block.path("name"), "'{}' is missing", block.path("name"));
  const Json* input = block.take("input");
  if (input != nullptr && !input->is_object())
    fail_field(block.path("input"), "'{}' must be a JSON object", block.path("input"));
  out.arguments = call_arguments(input);
  return out;
}

// A block of `message`; results of tools are messages of their own.
void read_block(const Json& object, const std::string& where, ChatMessage& message, std::vector<ChatMessage>& results) {
  JsonFields block(object, where + ".");
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
  block.end();
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

void read_anthropic_message(const Json& object, const std::string& where, std::vector<ChatMessage>& chat) {
  JsonFields fields(object, where + ".");
  ChatMessage message{.role = fields.text("role", ""), .content = {}};
  if (message.role != "user" && message.role != "assistant" && message.role != "system")
    fail_field(where + ".role", "'{}.role' must be user, assistant or system", where);
  const Json* content = fields.take("content");
  fields.end();
  if (content == nullptr || !(content->is_string() || content->is_array()))
    fail_field(where + ".content", "'{}.content' must be a string or a list of blocks", where);
  std::vector<ChatMessage> results;
  if (content->is_string()) message.content = content->get<std::string>();
  for (std::size_t i = 0; content->is_array() && i < content->size(); ++i)
    read_block((*content)[i], fmt::format("{}.content[{}]", where, i), message, results);
  const bool only_results = !results.empty() && message.content.empty();
  std::ranges::move(results, std::back_inserter(chat));
  if (!only_results) append_message(std::move(message), chat);
}

void read_anthropic_messages(const Json* messages, std::vector<ChatMessage>& chat) {
  if (messages == nullptr) fail_field("messages", "'messages' is missing");
  if (!messages->is_array() || messages->empty()) fail_field("messages", "'messages' must be a list of at least one");
  for (std::size_t i = 0; i < messages->size(); ++i)
    read_anthropic_message((*messages)[i], fmt::format("messages[{}]", i), chat);
  link_calls(chat);
}

void read_anthropic_tools(const Json* tools, ChatInput& chat) {
  if (tools == nullptr) return;
  if (!tools->is_array()) fail_field("tools", "'tools' must be a list");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    JsonFields fields((*tools)[i], fmt::format("tools[{}].", i));
    if (const std::string type = fields.text("type", "custom"); type != "custom")
      fail_field(fields.path("type"),
                 "'{}' is '{}': tools of Anthropic's servers and clients are not supported, custom is",
                 fields.path("type"), type);
    fields.ignore({"cache_control", "input_examples", "allowed_callers", "defer_loading", "eager_input_streaming"});
    add_tool({.name = fields.text("name", ""),
              .name_field = fields.path("name"),
              .description = fields.text("description", ""),
              .parameters = fields.take("input_schema"),
              .parameters_field = fields.path("input_schema"),
              .strict = fields.boolean("strict", false)},
             chat);
    fields.end();
  }
}

// {"type": "auto", "any", "none", or "tool" with "name"; "disable_parallel_tool_use": bool}
void read_anthropic_choice(const Json* choice, ChatInput& chat) {
  if (choice == nullptr) return;
  JsonFields fields(*choice, "tool_choice.");
  const std::string type = fields.text("type", ""), name = fields.text("name", "");
  chat.parallel_tool_calls = !fields.boolean("disable_parallel_tool_use", false);
  fields.end();
  if (type == "auto") return;
  if (type == "none") {
    chat.tool_choice = ToolChoice::kNone;
    return;
  }
  if (type != "any" && type != "tool")
    fail_field("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none");
  if (chat.tools.empty()) fail_field("tool_choice", "'tool_choice' needs 'tools'");
  chat.tool_choice = ToolChoice::kRequired;
  if (type == "tool") require_tool(name, "tool_choice.name", chat);
}

// {"type": "enabled", "budget_tokens": n}, "adaptive" or "disabled". Without it, the template decides.
void read_thinking(const Json* thinking, ChatInput& chat) {
  if (thinking == nullptr) return;
  JsonFields fields(*thinking, "thinking.");
  fields.ignore({"budget_tokens", "display"});  // a template has no budget
  const std::string type = fields.text("type", "");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    fail_field("thinking.type", "'thinking.type' must be enabled, adaptive or disabled");
  chat.variables["enable_thinking"] = type == "disabled" ? "false" : "true";
  fields.end();
}

// {"type": "json_schema", "schema": {...}}
void read_json_format(const Json* format, const char* where, StructuredOutput& output) {
  if (format == nullptr) return;
  JsonFields fields(*format, std::string(where) + ".");
  if (fields.text("type", "") != "json_schema")
    fail_field(std::string(where) + ".type", "'{}.type' must be json_schema", where);
  const Json* schema = fields.take("schema");
  if (schema == nullptr) fail_field(std::string(where) + ".schema", "'{}.schema' is missing", where);
  fields.ignore({"name", "description"});
  fields.end();
  output.field = where;
  read_schema(*schema, std::string(where) + ".schema", true, output);
}

void read_output_config(JsonFields& fields, CompletionInput& input) {
  const Json* config = fields.take("output_config");
  const Json* format = fields.take("output_format");  // its earlier name
  if (config != nullptr) {
    JsonFields of(*config, "output_config.");
    if (const std::string effort = of.text("effort", ""); !effort.empty())
      input.chat->variables["reasoning_effort"] = Json(effort).dump();
    const Json* newer = of.take("format");
    if (newer != nullptr && format != nullptr)
      fail_field("output_format", "'output_format' and 'output_config.format' mean the same: give one");
    read_json_format(newer, "output_config.format", input.output);
    of.end();
  }
  read_json_format(format, "output_format", input.output);
}

// Of a block of the system prompt, or of a tool.
bool marks_system_prompt(const Json& body) {
  for (const char* name : {"system", "tools"})
    if (const auto list = body.find(name); list != body.end() && list->is_array())
      if (std::ranges::any_of(*list, has_cache_control)) return true;
  return false;
}

void refuse_servers(const Json* servers) {
  if (servers != nullptr && !(servers->is_array() && servers->empty()))
    fail_field("mcp_servers", "'mcp_servers' is not supported: the server calls no tools, give them in 'tools'");
}

}  // namespace

CompletionInput read_anthropic(const Json& body, bool counts, const ServedModel& model) {
  JsonFields fields(body);
  CompletionInput input(model);
  CompletionRequest& request = input.request;
  ChatInput& chat = input.chat.emplace();
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  fields.ignore({"metadata", "service_tier", "container", "context_management", "cache_control", "inference_geo",
                 "diagnostics", "speed", "user_profile_id", "workspace_id", "betas"});
  refuse_servers(fields.take("mcp_servers"));
  const bool limited = fields.take("max_tokens") != nullptr;
  if (!limited && !counts) fail_field("max_tokens", "'max_tokens' is missing: give the max tokens of the answer");
  request.request.max_tokens = fields.integer("max_tokens", model.default_max_tokens, 1, kMaxAnswerTokens);
  if (const Json* system = fields.take("system")) {
    const std::string text = read_text_blocks(*system, "system", is_no_billing_header);
    if (!text.empty()) chat.messages.push_back({.role = "system", .content = text});
  }
  read_anthropic_messages(fields.take("messages"), chat.messages);
  continue_last(chat);
  read_anthropic_tools(fields.take("tools"), chat);
  read_anthropic_choice(fields.take("tool_choice"), chat);
  read_template_variables(fields.take("chat_template_kwargs"), chat);
  read_thinking(fields.take("thinking"), chat);
  read_output_config(fields, input);
  read_stop(fields.take("stop_sequences"), "stop_sequences", request.stop);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  read_cache_fields(fields, model, input);
  fields.end();
  input.marks_system = request.restore.empty() && marks_system_prompt(body);
  return input;
}

}  // namespace palimpsest
