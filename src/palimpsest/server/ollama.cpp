#include "palimpsest/server/ollama.h"

#include <httplib.h>

#include <chrono>
#include <ctime>
#include <filesystem>

#include "palimpsest/server/fields.h"
#include "palimpsest/server/reply_form.h"
#include "palimpsest/server/service.h"
#include "palimpsest/text/sampler_fields.h"

namespace palimpsest {
namespace {

std::string time_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string now_text() {
  return time_text(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
}

void read_options(const Json* options, Json& out) {
  if (options == nullptr) return;
  Fields fields(*options, "options.");
  for (const char* name : {"seed", "stop"})
    if (const Json* value = fields.take(name)) out[name] = *value;
  for (const SamplerField& field : sampler_fields())
    for (const char* name : {field.name, field.alias})
      if (name != nullptr)
        if (const Json* value = fields.take(name)) out[name] = *value;
  // A negative limit is none: up to the trained context.
  if (const Json* limit = fields.take("num_predict"))
    out["max_tokens"] = limit->is_number() && *limit < 0 ? Json(-1) : *limit;
  fields.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "numa",
                 "low_vram", "f16_kv", "use_mlock", "vocab_only", "penalize_newline"});
  fields.end();
}

Json call_of(const Json& call, const std::string& where, std::size_t number) {
  Fields fields(call, where + ".");
  static const Json kNone = Json::object();
  const Json *function = fields.take("function"), *arguments = nullptr;
  Fields of(function == nullptr ? kNone : *function, where + ".function.");
  const std::string name = of.text("name", "");
  arguments = of.take("arguments");
  return {{"id", fmt::format("call{:05}", number)},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", arguments == nullptr ? kNone : *arguments}}}};
}

// Arguments are objects; calls and results belong together by their order.
Json messages_of(const Json& messages) {
  if (!messages.is_array()) fail_field("messages", "'messages' must be a list");
  Json out = Json::array();
  std::size_t calls = 0, results = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    Fields fields(messages[i], where + ".");
    Json message = {{"role", fields.text("role", "")}, {"content", fields.text("content", "")}};
    if (const Json* images = fields.take("images"); images != nullptr && !images->empty())
      fail_field(where + ".images", "'{}.images': images are not supported", where);
    if (const std::string thinking = fields.text("thinking", ""); !thinking.empty())
      message["reasoning_content"] = thinking;
    if (message["role"] == "tool") {
      message["tool_call_id"] = fmt::format("call{:05}", results++);
      if (const std::string name = fields.text("tool_name", ""); !name.empty()) message["name"] = name;
      fields.ignore({"name"});
    }
    if (const Json* list = fields.take("tool_calls")) {
      if (!list->is_array()) fail_field(where + ".tool_calls", "'{}.tool_calls' must be a list", where);
      for (std::size_t j = 0; j < list->size(); ++j)
        message["tool_calls"].push_back(call_of((*list)[j], fmt::format("{}.tool_calls[{}]", where, j), calls++));
    }
    fields.end();
    out.push_back(std::move(message));
  }
  return out;
}

class OllamaForm final : public ReplyForm {
 public:
  OllamaForm(std::string model, bool chat) : model_(std::move(model)), chat_(chat) {}

  Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) override {
    const Choice& choice = choices.front();
    whole_ = choice;
    Json out = object(choice.text, choice.reasoning, true);
    add_end(usage, out);
    return out;
  }
  const char* stream_type() const override { return "application/x-ndjson"; }
  std::string piece(const Event& event, const ReplyDelta& delta, bool, const Json&, const ReplyUsage*) override {
    add(delta, whole_);
    if (event.last) whole_.finish = event.finish;
    if (delta.content.empty() && delta.reasoning.empty()) return {};
    return line(object(delta.content, delta.reasoning, false));
  }
  std::string end(const ReplyUsage& usage) override {
    Json out = object("", "", true);
    add_end(usage, out);
    return line(out);
  }
  std::string error(const ApiError& error) override { return line({{"error", error.what()}}); }
  std::string ping() const override { return "\n"; }

 private:
  static std::string line(const Json& object) { return dump(object) + "\n"; }

  // Calls are complete in the last object.
  Json object(const std::string& content, const std::string& thinking, bool last) const {
    Json out = {{"model", model_}, {"created_at", now_text()}};
    if (!chat_) {
      out["response"] = content;
      if (!thinking.empty()) out["thinking"] = thinking;
    } else {
      Json message = {{"role", "assistant"}, {"content", content}};
      if (!thinking.empty()) message["thinking"] = thinking;
      if (last)
        for (const ToolCall& call : whole_.calls) {
          Json arguments = Json::parse(call.arguments, nullptr, false);
          if (arguments.is_discarded()) arguments = Json::object();  // cut off at num_predict
          message["tool_calls"].push_back({{"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
        }
      out["message"] = std::move(message);
    }
    out["done"] = last;
    return out;
  }

  void add_end(const ReplyUsage& usage, Json& out) const {
    const auto nanoseconds = [](double ms) { return static_cast<long long>(ms * 1e6); };
    const char* reason = finish_reason(whole_.finish);
    out["done_reason"] = reason == nullptr ? "stop" : reason;
    out["total_duration"] = nanoseconds(usage.total_ms);
    out["load_duration"] = 0;
    out["prompt_eval_count"] = usage.prompt_tokens;
    out["prompt_eval_duration"] = nanoseconds(usage.ttft_ms);
    out["eval_count"] = usage.completion_tokens;
    out["eval_duration"] = nanoseconds(usage.total_ms - usage.ttft_ms);
  }

  std::string model_;
  bool chat_;
  Choice whole_;
};

}  // namespace

std::string without_latest(std::string name) {
  const std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

OllamaRequest read_ollama(const Json& body, bool chat, const ServedModel& model) {
  Fields fields(body);
  OllamaRequest out{.chat = true, .body = Json::object()};
  if (const std::string name = fields.text("model", ""); !name.empty()) out.body["model"] = without_latest(name);
  out.body["stream"] = fields.boolean("stream", true);
  fields.ignore({"keep_alive", "context", "template"});
  read_options(fields.take("options"), out.body);
  if (const Json* format = fields.take("format"); format != nullptr && *format != "") {
    if (*format == "json")
      out.body["response_format"] = {{"type", "json_object"}};
    else
      out.body["response_format"] = {{"type", "json_schema"},
                                     {"json_schema", {{"schema", *format}, {"strict", false}}}};
  }
  if (const Json* think = fields.take("think")) {
    if (think->is_boolean()) out.body["chat_template_kwargs"] = {{"enable_thinking", *think}};
    if (think->is_string()) out.body["reasoning_effort"] = *think;
  }
  if (const Json* images = fields.take("images"); images != nullptr && !images->empty())
    fail_field("images", "'images' is not supported");
  if (const std::string suffix = fields.text("suffix", ""); !suffix.empty())
    fail_field("suffix", "'suffix' is not supported");
  if (chat) {
    const Json* messages = fields.take("messages");
    if (messages == nullptr) fail_field("messages", "'messages' is missing");
    out.body["messages"] = messages_of(*messages);
    if (const Json* tools = fields.take("tools"); tools != nullptr && !tools->empty()) out.body["tools"] = *tools;
  } else {
    out.chat = !fields.boolean("raw", false);
    const std::string prompt = fields.text("prompt", ""), system = fields.text("system", "");
    if (!out.chat) {
      out.body["prompt"] = prompt;
      out.body.erase("chat_template_kwargs");
      if (!out.body.contains("max_tokens")) out.body["max_tokens"] = model.default_max_tokens;
    } else {
      out.body["messages"] = Json::array();
      if (!system.empty()) out.body["messages"].push_back({{"role", "system"}, {"content", system}});
      out.body["messages"].push_back({{"role", "user"}, {"content", prompt}});
    }
  }
  fields.end();
  return out;
}

void ollama_tags(Service& service, httplib::Response& out) {
  const Model& model = service.scheduler().decoder().model();
  std::error_code error;
  const auto bytes = std::filesystem::file_size(model.path(), error);
  const auto written = std::filesystem::last_write_time(model.path(), error);
  const auto time = std::chrono::file_clock::to_sys(written);
  const std::string name = service.model().name + ":latest";
  const Json one = {
      {"name", name},
      {"model", name},
      {"modified_at", error ? now_text()
                            : time_text(std::chrono::system_clock::to_time_t(
                                  std::chrono::time_point_cast<std::chrono::system_clock::duration>(time)))},
      {"size", error ? Json(0) : Json(bytes)},
      {"digest", ""},
      {"details",
       {{"format", "gguf"},
        {"family", model.hyper().architecture},
        {"parameter_size", ""},
        {"quantization_level", ""}}}};
  out.set_content(dump({{"models", Json::array({one})}}), "application/json");
}

std::unique_ptr<ReplyForm> ollama_form(std::string model, bool chat) {
  return std::make_unique<OllamaForm>(std::move(model), chat);
}

}  // namespace palimpsest
