// The replies of /v1/responses: output items, and the events of a stream.
#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/reply_parts.h"

namespace palimpsest {
namespace {

Json response_usage(const ReplyUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},      {"input_tokens_details", cached_json(usage)},
          {"output_tokens", usage.completion_tokens}, {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"evicted_tokens", usage.evicted_tokens},   {"cache_method", usage.method}};
}

class ResponsesWriter final : public ReplyWriter {
 public:
  ResponsesWriter(ReplyHead head, Json request, std::function<void(const Json&, const Json&)> keep)
      : head_(std::move(head)), request_(std::move(request)), keep_(std::move(keep)) {}

  Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) override {
    const Choice& choice = choices.front();
    ReplyDelta delta{.content = choice.text, .reasoning = choice.reasoning, .calls = {}};
    for (std::size_t i = 0; i < choice.calls.size(); ++i)
      delta.calls.push_back({i, choice.calls[i].id, choice.calls[i].name, choice.calls[i].arguments});
    add(delta);
    close();
    finish_ = choice.finish;
    Json out = response(&usage);
    if (keep_) keep_(output_, out);
    return out;
  }

  std::string begin() override {
    std::string out = event("response.created", {{"response", response(nullptr)}});
    out += event("response.in_progress", {{"response", response(nullptr)}});
    return out;
  }
  std::string piece(const Event& one, const ReplyDelta& delta, bool, const Json&, const ReplyUsage*) override {
    std::string out = add(delta);
    if (!one.last) return out;
    finish_ = one.finish;
    return out + close();
  }
  std::string end(const ReplyUsage& usage) override {
    const Json out = response(&usage);
    if (keep_) keep_(output_, out);
    return event(finish_ == Finish::kLength ? "response.incomplete" : "response.completed", {{"response", out}});
  }
  std::string error(const ApiError& error) override {
    Json wrong = error.json()["error"];
    Json failed = response(nullptr);
    failed["status"] = "failed";
    failed["error"] = {{"code", wrong["code"].is_null() ? Json("server_error") : wrong["code"]},
                       {"message", wrong["message"]}};
    return event("response.failed", {{"response", std::move(failed)}});
  }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  std::string event(const std::string& type, Json fields) {
    fields["type"] = type;
    fields["sequence_number"] = sequence_++;
    return "event: " + type + "\ndata: " + dump(fields) + "\n\n";
  }

  // An event of the open item.
  std::string item_event(const std::string& type, Json fields) {
    fields["item_id"] = output_.back()["id"];
    fields["output_index"] = output_.size() - 1;
    return event(type, std::move(fields));
  }

  // `usage`: nullptr while it is in progress.
  Json response(const ReplyUsage* usage) const {
    const bool cut = usage != nullptr && finish_ == Finish::kLength;
    Json out = {{"id", head_.id},
                {"object", "response"},
                {"created_at", head_.created},
                {"status", usage == nullptr ? "in_progress"
                           : cut            ? "incomplete"
                                            : "completed"},
                {"error", nullptr},
                {"incomplete_details", cut ? Json{{"reason", "max_output_tokens"}} : Json(nullptr)},
                {"model", head_.model},
                {"output", usage == nullptr ? Json::array() : output_},
                {"usage", usage == nullptr ? Json(nullptr) : response_usage(*usage)}};
    static const Json kEchoed = {{"instructions", nullptr},
                                 {"max_output_tokens", nullptr},
                                 {"metadata", Json::object()},
                                 {"parallel_tool_calls", true},
                                 {"temperature", 1.0},
                                 {"tool_choice", "auto"},
                                 {"tools", Json::array()},
                                 {"top_p", 1.0},
                                 {"store", true},
                                 {"previous_response_id", nullptr}};
    for (const auto& [name, fallback] : kEchoed.items())
      out[name] = request_.contains(name) && !request_[name].is_null() ? request_[name] : fallback;
    return out;
  }

  std::string add(const ReplyDelta& delta) {
    std::string out;
    if (!delta.reasoning.empty()) out += add_text(Kind::kReasoning, delta.reasoning);
    if (!delta.content.empty()) out += add_text(Kind::kMessage, delta.content);
    for (const ReplyDelta::Call& call : delta.calls) {
      if (!call.id.empty()) {
        out += close();
        open_ = Kind::kCall;
        output_.push_back({{"type", "function_call"},
                           {"id", new_id("fc_")},
                           {"call_id", call.id},
                           {"name", call.name},
                           {"arguments", ""},
                           {"status", "in_progress"}});
        out += item_event("response.output_item.added", {{"item", output_.back()}});
      }
      Json& item = output_.back();
      item["arguments"] = item["arguments"].get<std::string>() + call.arguments;
      if (!call.arguments.empty())
        out += item_event("response.function_call_arguments.delta", {{"delta", call.arguments}});
    }
    return out;
  }

  std::string add_text(Kind kind, const std::string& text) {
    std::string out;
    const bool message = kind == Kind::kMessage;
    if (open_ != kind) {
      out += close();
      open_ = kind;
      Json item = {{"type", message ? "message" : "reasoning"},
                   {"id", new_id(message ? "msg_" : "rs_")},
                   {"status", "in_progress"}};
      if (message) item["role"] = "assistant";
      if (!message) item["summary"] = Json::array();
      item["content"] = Json::array();
      output_.push_back(std::move(item));
      out += item_event("response.output_item.added", {{"item", output_.back()}});
      Json part = {{"type", message ? "output_text" : "reasoning_text"}, {"text", ""}};
      if (message) part["annotations"] = Json::array();
      if (message) out += item_event("response.content_part.added", {{"content_index", 0}, {"part", part}});
      output_.back()["content"].push_back(std::move(part));
    }
    Json& part = output_.back()["content"][0];
    part["text"] = part["text"].get<std::string>() + text;
    Json fields = {{"content_index", 0}, {"delta", text}};
    if (message) fields["logprobs"] = Json::array();
    return out +
           item_event(message ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(fields));
  }

  // Ends the open item.
  std::string close() {
    if (open_ == Kind::kNone) return {};
    std::string out;
    Json& item = output_.back();
    item["status"] = "completed";
    if (open_ == Kind::kCall) {
      out = item_event("response.function_call_arguments.done",
                       {{"name", item["name"]}, {"arguments", item["arguments"]}});
    } else {
      const Json part = item["content"][0];
      const bool message = open_ == Kind::kMessage;
      Json fields = {{"content_index", 0}, {"text", part["text"]}};
      if (message) fields["logprobs"] = Json::array();
      out = item_event(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(fields));
      if (message) out += item_event("response.content_part.done", {{"content_index", 0}, {"part", part}});
    }
    open_ = Kind::kNone;
    return out + item_event("response.output_item.done", {{"item", item}});
  }

  ReplyHead head_;
  Json request_, output_ = Json::array();
  std::function<void(const Json&, const Json&)> keep_;
  Kind open_ = Kind::kNone;
  Finish finish_ = Finish::kEnd;
  long long sequence_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> responses_writer(ReplyHead head, Json echoed,
                                              std::function<void(const Json&, const Json&)> keep) {
  return std::make_unique<ResponsesWriter>(std::move(head), std::move(echoed), std::move(keep));
}

}  // namespace palimpsest
