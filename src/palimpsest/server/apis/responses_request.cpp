#include "palimpsest/server/apis/responses_request.h"

#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/sampling_fields.h"

namespace palimpsest {
namespace {

std::string read_content(JsonFields& item, const char* name) {
  return read_text_parts(item, name, {"input_text", "output_text", "text", "refusal"});
}

// Reasoning and calls in a row are of one message of the assistant, with the text before them.
ChatMessage& of_assistant(std::vector<ChatMessage>& chat) {
  if (chat.empty() || chat.back().role != "assistant") chat.push_back({.role = "assistant", .content = {}});
  return chat.back();
}

void read_item(JsonFields& item, std::vector<ChatMessage>& chat) {
  const std::string type = item.text("type", "message");
  if (type == "reasoning") return item.ignore_rest();  // is not read again
  item.ignore({"id", "status"});
  if (type == "function_call") {
    of_assistant(chat).tool_calls.push_back({.id = item.text("call_id", ""),
                                             .name = item.text("name", ""),
                                             .arguments = call_arguments(item.take("arguments"))});
  } else if (type == "function_call_output") {
    chat.push_back({.role = "tool", .content = read_content(item, "output")});
    chat.back().tool_call_id = item.text("call_id", "");
  } else if (type == "message") {
    std::string role = item.text("role", "");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      item.refuse("role", "must be system, developer, user or assistant");
    chat.push_back({.role = role, .content = read_content(item, "content")});
  } else {
    item.refuse("type", "is '{}', which is not supported", type);
  }
}

void read_text_format(JsonFields& fields, StructuredOutput& output) {
  fields.object("text", [&](JsonFields& text) {
    text.ignore({"verbosity"});
    text.object("format", [&](JsonFields& format) {
      const std::string type = format.text("type", "");
      if (type == "json_object") {
        read_schema(kAnyObject, text.path("format"), true, output);
      } else if (type == "json_schema") {
        format.ignore({"name", "description"});
        read_schema(format.need("schema"), format.path("schema"), format.boolean("strict", true), output);
      } else if (type != "text") {
        format.refuse("type", "must be text, json_object or json_schema");
      }
    });
  });
}

Json items_of(const Json* input) {
  if (input == nullptr) fail_field("input", "'input' is missing");
  if (input->is_string()) return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  if (!input->is_array()) fail_field("input", "'input' must be a string or a list of items");
  return *input;
}

}  // namespace

ResponsesRequest read_responses(const Json& body, const Json& previous, const ServedModel& model) {
  JsonFields fields(body);
  if (fields.boolean("background", false)) fields.refuse("background", "is not supported");
  fields.ignore({"include", "truncation", "metadata", "user", "service_tier", "safety_identifier", "max_tool_calls",
                 "top_logprobs", "previous_response_id", "stream_options", "timings_per_token", "return_progress"});
  ResponsesRequest out{
      .input = CompletionInput(model), .store = fields.boolean("store", true), .items = items_of(fields.take("input"))};
  CompletionInput& input = out.input;
  CompletionRequest& request = input.request;
  ChatInput& chat = input.chat.emplace();
  input.names.messages = "input";
  input.names.limit = "max_output_tokens";
  check_model(fields.text("model", model.name), model);
  request.stream = fields.boolean("stream", false);
  if (const std::string text = fields.text("instructions", ""); !text.empty())
    chat.messages.push_back({.role = "system", .content = text});
  const auto read = [&](JsonFields& item) { read_item(item, chat.messages); };
  JsonFields::each(previous, "previous_response", read);
  JsonFields::each(out.items, "input", read);
  out.items.insert(out.items.begin(), previous.begin(), previous.end());
  if (chat.messages.empty()) fields.refuse("input", "must have at least one message");
  link_calls(chat.messages);
  continue_last(chat);
  fields.list("tools", [&](JsonFields& tool) {
    if (const std::string type = tool.text("type", ""); type != "function")
      tool.refuse("type", "is '{}': function is supported", type);
    read_tool(tool, "parameters", chat);
  });
  read_tool_choice(fields, require_tool, chat);
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_template_variables(fields, chat);
  fields.object("reasoning", [&](JsonFields& reasoning) {
    reasoning.ignore({"summary", "generate_summary"});
    if (const std::string effort = reasoning.text("effort", ""); !effort.empty())
      chat.variables["reasoning_effort"] = Json(effort).dump();
  });
  read_text_format(fields, input.output);
  request.request.max_tokens = fields.integer("max_output_tokens", model.default_max_tokens, 1, kMaxAnswerTokens);
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.request.sampler);
  read_cache_fields(fields, model, input);
  fields.end();
  return out;
}

}  // namespace palimpsest
