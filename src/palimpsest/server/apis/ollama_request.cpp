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
void read_options(JsonFields& fields, const ServedModel& model, CompletionInput& input) {
  Request& request = input.request.request;
  request.max_tokens = model.default_max_tokens;
  input.names.limit = "options.num_predict";
  input.names.sampling = "options.";
  fields.object("options", [&](JsonFields& options) {
    input.has_seed = options.take("seed") != nullptr;
    read_sampling(options, *model.vocabulary, request.sampler);
    read_stop(options, "stop", input.request.stop);
    // 0 and less: no limit, up to the trained context.
    if (options.take("num_predict") != nullptr) {
      const long long limit = options.integer("num_predict", 0, -kMaxAnswerTokens, kMaxAnswerTokens);
      request.max_tokens = limit > 0 ? limit : -1;
    }
    options.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "numa"});
    if (const auto rest = options.rest(); !rest.empty()) log_fields()["ignored_options"] = rest;
    options.ignore_rest();
  });
}

void refuse_images(JsonFields& fields) {
  if (const Json* images = fields.take("images"); images != nullptr && !images->empty())
    fields.refuse("images", "is not supported: give text");
}

void read_ollama_message(JsonFields& fields, std::vector<ChatMessage>& chat) {
  ChatMessage message{.role = fields.text("role", ""), .content = fields.text("content", "")};
  if (message.role != "system" && message.role != "user" && message.role != "assistant" && message.role != "tool")
    fields.refuse("role", "must be system, user, assistant or tool");
  refuse_images(fields);
  message.reasoning = fields.text("thinking", "");
  if (message.role == "tool") {
    message.name = fields.text("tool_name", "");
    message.tool_call_id = fields.text("tool_call_id", "");
  }
  fields.ignore({"name", "tool_name", "tool_call_id"});
  read_tool_calls(fields, message);
  chat.push_back(std::move(message));
}

// "json", or a schema.
void read_format(JsonFields& fields, StructuredOutput& output) {
  const Json* format = fields.take("format");
  if (format == nullptr || *format == "") return;
  const bool any = *format == "json";
  read_schema(any ? kAnyObject : *format, "format", any, output);
}

// true and false, or "low", "medium" and "high".
void read_think(JsonFields& fields, ChatInput& chat) {
  const Json* think = fields.take("think");
  if (think == nullptr) return;
  if (!think->is_boolean() && !think->is_string()) fields.refuse("think", "must be true, false or a level");
  chat.variables[think->is_boolean() ? "enable_thinking" : "reasoning_effort"] = think->dump();
}

// Reads the prompt of /api/generate: a turn of a chat, or the text as it is.
void read_prompt_of(JsonFields& fields, const ServedModel& model, OllamaRequest& out) {
  CompletionInput& input = out.input;
  const bool raw = fields.boolean("raw", false) || model.chat_template == nullptr;
  const std::string prompt = fields.text("prompt", ""), system = fields.text("system", "");
  const std::string suffix = fields.text("suffix", "");
  if (prompt.empty() && suffix.empty() && system.empty()) {
    out.only = "load";
  } else if (!suffix.empty()) {
    input.chat.reset();
    input.request.prompts.emplace_back(
        parse_field("suffix", [&] { return infill_prompt(*model.vocabulary, {.prefix = prompt, .suffix = suffix}); }));
  } else if (raw) {
    input.chat.reset();
    input.request.prompts.emplace_back(read_prompt(Json(system + prompt), "prompt", model, false));
  } else {
    input.names.messages = "prompt";
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
  check_model(without_latest(fields.text("model", model.name)), model);
  input.request.stream = fields.boolean("stream", true);
  const bool unload = is_zero(fields.take("keep_alive"));
  fields.ignore({"context", "template"});
  read_options(fields, model, input);
  read_format(fields, input.output);
  read_think(fields, *input.chat);
  refuse_images(fields);
  read_cache_fields(fields, model, input);
  if (chat) {
    ChatInput& turns = *input.chat;
    fields.list("messages", [&](JsonFields& message) { read_ollama_message(message, turns.messages); });
    link_calls(turns.messages);
    if (turns.messages.empty())
      out.only = "load";
    else
      continue_last(turns);
    fields.list("tools", [&](JsonFields& tool) {
      if (const std::string type = tool.text("type", "function"); type != "function")
        tool.refuse("type", "is '{}': function is supported", type);
      tool.need_object("function", [&](JsonFields& function) { read_tool(function, "parameters", turns, false); });
    });
  } else {
    read_prompt_of(fields, model, out);
  }
  fields.end();
  if (!out.only.empty() && unload) out.only = "unload";
  return out;
}

}  // namespace palimpsest
