#include "palimpsest/server/apis/ollama_request.h"

#include "palimpsest/server/log.h"
#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/infill.h"

namespace palimpsest {
namespace {

// Options of the model's runtime, and unknown ones, are logged and have no effect, as in Ollama.
void read_options(const Json* options, const ServedModel& model, CompletionInput& input) {
  Request& request = input.request.request;
  request.max_tokens = model.default_max_tokens;
  if (options == nullptr) return;
  JsonFields fields(*options, "options.");
  input.has_seed = fields.take("seed") != nullptr;
  read_sampling(fields, *model.vocabulary, request.sampler);
  read_stop(fields.take("stop"), "options.stop", input.request.stop);
  // 0 and less: no limit, up to the trained context.
  if (fields.take("num_predict") != nullptr) {
    const long long limit = fields.integer("num_predict", 0, -kMaxAnswerTokens, kMaxAnswerTokens);
    request.max_tokens = limit > 0 ? limit : -1;
  }
  fields.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "numa"});
  if (const auto rest = fields.rest(); !rest.empty()) log_fields()["ignored_options"] = rest;
}

void read_ollama_calls(const Json& calls, const std::string& where, ChatMessage& message) {
  if (!calls.is_array()) fail_field(where, "'{}' must be a list", where);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", where, i);
    JsonFields fields(calls[i], at + ".");
    fields.ignore({"type"});
    ToolCall call{.id = fields.text("id", ""), .name = {}, .arguments = {}};
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(at + ".function", "'{}.function' is missing", at);
    fields.end();
    JsonFields of(*function, at + ".function.");
    of.ignore({"index"});
    call.name = of.text("name", "");
    call.arguments = call_arguments(of.take("arguments"));
    of.end();
    message.tool_calls.push_back(std::move(call));
  }
}

void refuse_images(JsonFields& fields) {
  if (const Json* images = fields.take("images"); images != nullptr && !images->empty())
    fail_field(fields.path("images"), "'{}': images are not supported", fields.path("images"));
}

std::vector<ChatMessage> read_ollama_messages(const Json& messages) {
  if (!messages.is_array()) fail_field("messages", "'messages' must be a list");
  std::vector<ChatMessage> chat;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    JsonFields fields(messages[i], where + ".");
    ChatMessage message{.role = fields.text("role", ""), .content = fields.text("content", "")};
    if (message.role != "system" && message.role != "user" && message.role != "assistant" && message.role != "tool")
      fail_field(where + ".role", "'{}.role' must be system, user, assistant or tool", where);
    refuse_images(fields);
    message.reasoning = fields.text("thinking", "");
    if (message.role == "tool") {
      message.name = fields.text("tool_name", "");
      message.tool_call_id = fields.text("tool_call_id", "");
    }
    fields.ignore({"name", "tool_name", "tool_call_id"});
    if (const Json* calls = fields.take("tool_calls")) read_ollama_calls(*calls, where + ".tool_calls", message);
    fields.end();
    chat.push_back(std::move(message));
  }
  link_calls(chat);
  return chat;
}

void read_ollama_tools(const Json* tools, ChatInput& chat) {
  if (tools == nullptr) return;
  if (!tools->is_array()) fail_field("tools", "'tools' must be a list");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    JsonFields fields((*tools)[i], where + ".");
    if (const std::string type = fields.text("type", "function"); type != "function")
      fail_field(where + ".type", "'{}.type' is '{}': function is supported", where, type);
    const Json* function = fields.take("function");
    if (function == nullptr) fail_field(where + ".function", "'{}.function' is missing", where);
    fields.end();
    JsonFields of(*function, where + ".function.");
    of.ignore({"strict"});
    add_tool({.name = of.text("name", ""),
              .name_field = of.path("name"),
              .description = of.text("description", ""),
              .parameters = of.take("parameters"),
              .parameters_field = of.path("parameters")},
             chat);
    of.end();
  }
}

// "json", or a schema.
void read_ollama_format(const Json* format, StructuredOutput& output) {
  if (format == nullptr || *format == "") return;
  output.field = "format";
  read_schema(*format == "json" ? Json{{"type", "object"}} : *format, "format", *format == "json", output);
}

// true and false, or "low", "medium" and "high".
void read_think(const Json* think, ChatInput& chat) {
  if (think == nullptr) return;
  if (!think->is_boolean() && !think->is_string()) fail_field("think", "'think' must be true, false or a level");
  chat.variables[think->is_boolean() ? "enable_thinking" : "reasoning_effort"] = think->dump();
}

// Of /api/generate: a turn of a chat, or the prompt as it is.
void read_prompt_of(JsonFields& fields, const ServedModel& model, OllamaRequest& out) {
  CompletionInput& input = out.input;
  const bool raw = fields.boolean("raw", false) || model.chat_template == nullptr;
  const std::string prompt = fields.text("prompt", ""), system = fields.text("system", "");
  const std::string suffix = fields.text("suffix", "");
  if (prompt.empty() && suffix.empty() && system.empty()) {
    out.only = "load";
  } else if (!suffix.empty()) {
    input.chat.reset();
    input.request.prompts.emplace_back(infill_prompt(*model.vocabulary, {.prefix = prompt, .suffix = suffix}));
  } else if (raw) {
    input.chat.reset();
    input.request.prompts.emplace_back(read_prompt(Json(system + prompt), "prompt", model, false));
  } else {
    input.messages_field = "prompt";
    if (!system.empty()) input.chat->messages.push_back({.role = "system", .content = system});
    input.chat->messages.push_back({.role = "user", .content = prompt});
  }
}

bool is_zero(const Json* keep_alive) {
  return keep_alive != nullptr && (*keep_alive == 0 || *keep_alive == "0" || *keep_alive == "0s");
}

}  // namespace

std::string without_latest(std::string name) {
  const std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

OllamaRequest read_ollama(const Json& body, bool chat, const ServedModel& model) {
  JsonFields fields(body);
  OllamaRequest out{.input = CompletionInput(model)};
  CompletionInput& input = out.input;
  input.chat.emplace();
  input.limit_field = "options.num_predict";
  check_model(without_latest(fields.text("model", model.name)), model);
  input.request.stream = fields.boolean("stream", true);
  const bool unload = is_zero(fields.take("keep_alive"));
  fields.ignore({"context", "template"});
  read_options(fields.take("options"), model, input);
  read_ollama_format(fields.take("format"), input.output);
  read_think(fields.take("think"), *input.chat);
  refuse_images(fields);
  read_cache_fields(fields, model, input);
  if (chat) {
    const Json* messages = fields.take("messages");
    if (messages == nullptr || messages->empty())
      out.only = "load";
    else
      input.chat->messages = read_ollama_messages(*messages), continue_last(*input.chat);
    read_ollama_tools(fields.take("tools"), *input.chat);
  } else {
    read_prompt_of(fields, model, out);
  }
  fields.end();
  if (!out.only.empty() && unload) out.only = "unload";
  return out;
}

}  // namespace palimpsest
