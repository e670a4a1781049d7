#include "palimpsest/server/apis/responses_request.h"

#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

std::string read_response_content(JsonFields& fields, const char* name) {
  const Json* content = fields.take(name);
  if (content == nullptr) fail_field(fields.path(name), "'{}' is missing", fields.path(name));
  return read_text_parts(*content, fields.path(name), {"input_text", "output_text", "text", "refusal"});
}

// Reasoning and calls in a row are of one message of the assistant, with the text before them.
ChatMessage& of_assistant(std::vector<ChatMessage>& chat) {
  if (chat.empty() || chat.back().role != "assistant") chat.push_back({.role = "assistant", .content = {}});
  return chat.back();
}

void read_item(const Json& item, const std::string& where, std::vector<ChatMessage>& chat) {
  JsonFields fields(item, where + ".");
  fields.ignore({"id", "status"});
  const std::string type = fields.text("type", "message");
  if (type == "reasoning") return;  // is not read again
  if (type == "function_call") {
    of_assistant(chat).tool_calls.push_back({.id = fields.text("call_id", ""),
                                             .name = fields.text("name", ""),
                                             .arguments = call_arguments(fields.take("arguments"))});
  } else if (type == "function_call_output") {
    chat.push_back({.role = "tool", .content = read_response_content(fields, "output")});
    chat.back().tool_call_id = fields.text("call_id", "");
  } else if (type == "message") {
    std::string role = fields.text("role", "");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      fail_field(fields.path("role"), "'{}' must be system, developer, user or assistant", fields.path("role"));
    chat.push_back({.role = role, .content = read_response_content(fields, "content")});
  } else {
    fail_field(fields.path("type"), "'{}' is '{}', which is not supported", fields.path("type"), type);
  }
  fields.end();
}

void read_response_tools(const Json* tools, ChatInput& chat) {
  if (tools == nullptr) return;
  if (!tools->is_array()) fail_field("tools", "'tools' must be a list");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    JsonFields fields((*tools)[i], fmt::format("tools[{}].", i));
    if (const std::string type = fields.text("type", ""); type != "function")
      fail_field(fields.path("type"), "'{}' is '{}': function is supported", fields.path("type"), type);
    add_tool({.name = fields.text("name", ""),
              .name_field = fields.path("name"),
              .description = fields.text("description", ""),
              .parameters = fields.take("parameters"),
              .parameters_field = fields.path("parameters"),
              .strict = fields.boolean("strict", false)},
             chat);
    fields.end();
  }
}

// "auto", "none", "required", or {"type": "function", "name": NAME}.
void read_response_tool_choice(const Json* choice, ChatInput& chat) {
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    chat.tool_choice = ToolChoice::kNone;
    return;
  }
  if (chat.tools.empty()) fail_field("tool_choice", "'tool_choice' needs 'tools'");
  chat.tool_choice = ToolChoice::kRequired;
  if (*choice == "required") return;
  if (!choice->is_object())
    fail_field("tool_choice", "'tool_choice' must be auto, none, required or the name of a function");
  JsonFields fields(*choice, "tool_choice.");
  if (fields.text("type", "function") != "function")
    fail_field("tool_choice.type", "'tool_choice.type' must be function");
  require_tool(fields.text("name", ""), fields.path("name"), chat);
  fields.end();
}

void read_response_format(const Json* text, StructuredOutput& output) {
  if (text == nullptr) return;
  JsonFields fields(*text, "text.");
  fields.ignore({"verbosity"});
  if (const Json* format = fields.take("format")) {
    output.field = "text.format";
    JsonFields of(*format, "text.format.");
    const std::string type = of.text("type", "");
    if (type == "json_object") {
      read_schema(Json{{"type", "object"}}, "text.format", true, output);
    } else if (type == "json_schema") {
      of.ignore({"name", "description"});
      const Json* schema = of.take("schema");
      if (schema == nullptr) fail_field("text.format.schema", "'text.format.schema' is missing");
      read_schema(*schema, "text.format.schema", of.boolean("strict", true), output);
    } else if (type != "text") {
      fail_field("text.format.type", "'text.format.type' must be text, json_object or json_schema");
    }
    of.end();
  }
  fields.end();
}

// {"effort": "low", "summary": "auto"}
void read_reasoning(const Json* reasoning, ChatInput& chat) {
  if (reasoning == nullptr) return;
  JsonFields fields(*reasoning, "reasoning.");
  fields.ignore({"summary", "generate_summary"});
  if (const std::string effort = fields.text("effort", ""); !effort.empty())
    chat.variables["reasoning_effort"] = Json(effort).dump();
  fields.end();
}

Json items_of(const Json* input) {
  if (input == nullptr) fail_field("input", "'input' is missing");
  if (input->is_string()) return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  if (!input->is_array()) fail_field("input", "'input' must be a string or a list of items");
  return *input;
}

}  // namespace

ResponseRequest read_response(const Json& body, const Json& previous, const ServedModel& model) {
  JsonFields fields(body);
  if (fields.boolean("background", false)) fail_field("background", "'background' is not supported");
  fields.ignore({"include", "truncation", "metadata", "store", "user", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "max_tool_calls", "top_logprobs", "previous_response_id",
                 "stream_options", "timings_per_token", "return_progress"});
  ResponseRequest out{.input = CompletionInput(model), .items = previous};
  CompletionInput& input = out.input;
  CompletionRequest& request = input.request;
  ChatInput& chat = input.chat.emplace();
  input.messages_field = "input";
  input.limit_field = "max_output_tokens";
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  if (const std::string text = fields.text("instructions", ""); !text.empty())
    chat.messages.push_back({.role = "system", .content = text});
  for (std::size_t i = 0; i < previous.size(); ++i)
    read_item(previous[i], fmt::format("previous_response[{}]", i), chat.messages);
  const Json items = items_of(fields.take("input"));
  for (std::size_t i = 0; i < items.size(); ++i) {
    read_item(items[i], fmt::format("input[{}]", i), chat.messages);
    out.items.push_back(items[i]);
  }
  if (chat.messages.empty()) fail_field("input", "'input' must have at least one message");
  link_calls(chat.messages);
  continue_last(chat);
  read_response_tools(fields.take("tools"), chat);
  read_response_tool_choice(fields.take("tool_choice"), chat);
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_template_variables(fields.take("chat_template_kwargs"), chat);
  read_reasoning(fields.take("reasoning"), chat);
  read_response_format(fields.take("text"), input.output);
  request.request.max_tokens = fields.integer("max_output_tokens", model.default_max_tokens, 1, kMaxAnswerTokens);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  read_cache_fields(fields, model, input);
  fields.end();
  return out;
}

}  // namespace palimpsest
