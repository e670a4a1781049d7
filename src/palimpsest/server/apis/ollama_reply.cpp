// The replies of Ollama's /api/chat and /api/generate: complete objects, and lines of a stream.
#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/server/reply/iso_time.h"

namespace palimpsest {
namespace {

class OllamaWriter final : public ReplyWriter {
 public:
  OllamaWriter(std::string model, bool chat) : model_(std::move(model)), chat_(chat) {}

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
    Json out = {{"model", model_}, {"created_at", iso_time()}};
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

Json ollama_loaded(const std::string& model, bool chat, const std::string& reason) {
  Json out = {{"model", model}, {"created_at", iso_time()}};
  if (chat)
    out["message"] = {{"role", "assistant"}, {"content", ""}};
  else
    out["response"] = "";
  out["done"] = true;
  out["done_reason"] = reason;
  return out;
}

std::unique_ptr<ReplyWriter> ollama_writer(std::string model, bool chat) {
  return std::make_unique<OllamaWriter>(std::move(model), chat);
}

}  // namespace palimpsest
