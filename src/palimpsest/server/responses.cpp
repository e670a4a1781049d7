#include "palimpsest/server/responses.h"

#include "palimpsest/server/fields.h"
#include "palimpsest/text/sampler_fields.h"

namespace palimpsest {
namespace {

// Parts of types input_text and output_text as parts of type text.
Json content_of(const Json& content, const std::string& where) {
  if (!content.is_array()) return content;
  Json parts = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}.content[{}].", where, i));
    const std::string type = part.text("type", "");
    if (type == "refusal") continue;
    if (type != "input_text" && type != "output_text" && type != "text")
      fail_field(where + ".content", "'{}.content' may have parts of type input_text and output_text only", where);
    const Json* text = part.take("text");
    parts.push_back({{"type", "text"}, {"text", text == nullptr ? Json() : *text}});
  }
  return parts;
}

// Calls in a row are calls of one message of the assistant.
void add_item(const Json& item, const std::string& where, Json& messages) {
  Fields fields(item, where + ".");
  fields.ignore({"id", "status"});
  const std::string type = fields.text("type", "message");
  if (type == "reasoning") return;  // is not read again
  if (type == "function_call") {
    const Json* const arguments = fields.take("arguments");
    const Json call = {
        {"id", fields.text("call_id", "")},
        {"type", "function"},
        {"function", {{"name", fields.text("name", "")}, {"arguments", arguments == nullptr ? Json("") : *arguments}}}};
    fields.end();
    const bool joins = !messages.empty() && messages.back()["role"] == "assistant";
    if (!joins) messages.push_back({{"role", "assistant"}, {"content", nullptr}});
    messages.back()["tool_calls"].push_back(call);
    return;
  }
  if (type == "function_call_output") {
    const Json* output = fields.take("output");
    if (output == nullptr) fail_field(where + ".output", "'{}.output' is missing", where);
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", fields.text("call_id", "")},
                        {"content", output->is_string() ? *output : content_of(*output, where)}});
    return fields.end();
  }
  if (type != "message") fail_field(where + ".type", "'{}.type' is '{}', which is not supported", where, type);
  const Json* content = fields.take("content");
  if (content == nullptr) fail_field(where + ".content", "'{}.content' is missing", where);
  messages.push_back({{"role", fields.text("role", "")}, {"content", content_of(*content, where)}});
  fields.end();
}

Json tools_of(const Json* tools) {
  Json out = Json::array();
  if (tools == nullptr) return out;
  if (!tools->is_array()) fail_field("tools", "'tools' must be a list");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields fields((*tools)[i], fmt::format("tools[{}].", i));
    if (const std::string type = fields.text("type", ""); type != "function")
      fail_field(fields.path("type"), "'{}' is '{}': function is supported", fields.path("type"), type);
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"})
      if (const Json* value = fields.take(name)) function[name] = *value;
    fields.end();
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

Json format_of(const Json& text) {
  Fields fields(text, "text.");
  fields.ignore({"verbosity"});
  const Json* format = fields.take("format");
  fields.end();
  if (format == nullptr) return nullptr;
  const auto type = format->find("type");  // the end of what is no object
  if (type == format->end() || *type != "json_schema") return *format;
  Json named = *format;
  named.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(named)}};
}

}  // namespace

void add_items(const Json& items, const std::string& where, Json& messages) {
  for (std::size_t i = 0; i < items.size(); ++i) add_item(items[i], fmt::format("{}[{}]", where, i), messages);
}

ChatOfResponse chat_of_response(const Json& body, const Json& previous) {
  Fields fields(body);
  if (fields.boolean("background", false)) fail_field("background", "'background' is not supported");
  fields.ignore({"include", "truncation", "metadata", "store", "user", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "max_tool_calls", "top_logprobs", "previous_response_id",
                 "stream_options"});
  ChatOfResponse out{.body = {{"messages", Json::array()}}, .messages = previous};
  const Json* input = fields.take("input");
  if (input == nullptr) fail_field("input", "'input' is missing");
  if (input->is_string())
    out.messages.push_back({{"role", "user"}, {"content", *input}});
  else if (input->is_array())
    add_items(*input, "input", out.messages);
  else
    fail_field("input", "'input' must be a string or a list of items");
  Json& chat = out.body;
  if (const std::string instructions = fields.text("instructions", ""); !instructions.empty())
    chat["messages"].push_back({{"role", "system"}, {"content", instructions}});
  for (const Json& message : out.messages) chat["messages"].push_back(message);
  for (const char* name : {"model", "stream", "parallel_tool_calls", "seed", "cache", "chat_template_kwargs",
                           "speculative", "min_tokens", "stop_token_ids", "logit_bias"})
    if (const Json* value = fields.take(name)) chat[name] = *value;
  for (const SamplerField& field : sampler_fields())
    for (const char* name : {field.name, field.alias})
      if (name != nullptr)
        if (const Json* value = fields.take(name)) chat[name] = *value;
  if (const Json* limit = fields.take("max_output_tokens")) chat["max_completion_tokens"] = *limit;
  if (Json tools = tools_of(fields.take("tools")); !tools.empty()) chat["tools"] = std::move(tools);
  if (const Json* choice = fields.take("tool_choice")) {
    const bool named = choice->is_object() && choice->contains("name");
    chat["tool_choice"] = named ? Json{{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}} : *choice;
  }
  if (const Json* text = fields.take("text")) chat["response_format"] = format_of(*text);
  if (const Json* reasoning = fields.take("reasoning"); reasoning != nullptr && reasoning->is_object())
    if (const auto effort = reasoning->find("effort"); effort != reasoning->end() && !effort->is_null())
      chat["reasoning_effort"] = *effort;
  fields.end();
  return out;
}

}  // namespace palimpsest
