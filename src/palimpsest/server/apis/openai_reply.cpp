#include <cmath>

#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

Json chat_logs(const std::vector<TokenLog>& logs) {
  const auto one = [](const std::string& bytes, float logprob) {
    return Json{{"token", whole_characters(bytes)}, {"logprob", logprob}, {"bytes", bytes_json(bytes)}};
  };
  Json content = Json::array();
  for (const TokenLog& log : logs) {
    Json token = one(log.bytes, log.logprob);
    token["top_logprobs"] = Json::array();
    for (const auto& [bytes, logprob] : log.top) token["top_logprobs"].push_back(one(bytes, logprob));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json text_logs(const std::vector<TokenLog>& logs) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const TokenLog& log : logs) {
    out["tokens"].push_back(whole_characters(log.bytes));
    out["token_logprobs"].push_back(std::isnan(log.logprob) ? Json(nullptr) : Json(log.logprob));
    out["text_offset"].push_back(log.offset);
    Json top = Json::object();
    for (const auto& [bytes, logprob] : log.top)
      top.emplace(whole_characters(bytes), logprob);  // of equal texts the likelier one, which is first
    out["top_logprobs"].push_back(std::isnan(log.logprob) ? Json(nullptr) : std::move(top));
  }
  return out;
}

Json logs_json(bool chat, bool wanted, const std::vector<TokenLog>& logs) {
  if (!wanted) return nullptr;
  return chat ? chat_logs(logs) : text_logs(logs);
}

Json reason_json(Finish finish, bool calls) {
  const char* reason = finish_reason(finish, calls);
  return reason == nullptr ? Json(nullptr) : Json(reason);
}

Json object_json(const ReplyHead& head, const char* object, Json choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", system_fingerprint()},
          {"choices", std::move(choices)}};
}

Json piece_json(const ReplyHead& head, Json choices) {
  return object_json(head, head.chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
}

Json message_json(const Choice& choice) {
  const bool no_content = choice.text.empty() && !choice.calls.empty();
  Json out = {{"role", "assistant"}, {"content", no_content ? Json(nullptr) : Json(choice.text)}, {"refusal", nullptr}};
  if (!choice.reasoning.empty()) out["reasoning_content"] = choice.reasoning;
  for (const ToolCall& call : choice.calls)
    out["tool_calls"].push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return out;
}

Json delta_json(const ReplyDelta& delta) {
  Json out = Json::object();
  if (!delta.reasoning.empty()) out["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) out["content"] = delta.content;
  for (const ReplyDelta::Call& call : delta.calls) {
    Json one = {{"index", call.index}};
    if (!call.id.empty()) {
      one["id"] = call.id;
      one["type"] = "function";
      one["function"]["name"] = call.name;
    }
    one["function"]["arguments"] = call.arguments;
    out["tool_calls"].push_back(std::move(one));
  }
  return out;
}

Json completion_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage) {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    Json one = {{"index", i}};
    if (head.chat)
      one["message"] = message_json(choice);
    else
      one["text"] = choice.text;
    one["logprobs"] = logs_json(head.chat, logs, choice.logs);
    one["finish_reason"] = reason_json(choice.finish, !choice.calls.empty());
    list.push_back(std::move(one));
  }
  Json out = object_json(head, head.chat ? "chat.completion" : "text_completion", std::move(list));
  out["usage"] = usage_json(usage);
  out["timings"] = timings_json(usage);
  return out;
}

Json first_chunk_json(const ReplyHead& head, int choice) {
  return piece_json(head, Json::array({{{"index", choice},
                                        {"delta", {{"role", "assistant"}, {"content", ""}}},
                                        {"logprobs", nullptr},
                                        {"finish_reason", nullptr}}}));
}

Json chunk_json(const ReplyHead& head, const Event& event, const ReplyDelta& delta, bool calls, bool logs) {
  Json one = {{"index", event.choice}};
  if (head.chat)
    one["delta"] = delta_json(delta);
  else
    one["text"] = delta.content;
  one["logprobs"] = logs_json(head.chat, logs && !event.logs.empty(), event.logs);
  one["finish_reason"] = event.last ? reason_json(event.finish, calls) : Json(nullptr);
  return piece_json(head, Json::array({std::move(one)}));
}

Json usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage) {
  Json out = piece_json(head, Json::array());
  out["usage"] = usage_json(usage);
  out["timings"] = timings_json(usage);
  return out;
}

class OpenAiWriter final : public ReplyWriter {
 public:
  OpenAiWriter(ReplyHead head, bool logs, bool include_usage)
      : head_(std::move(head)), logs_(logs), include_usage_(include_usage) {}

  Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) override {
    return completion_json(head_, choices, logs_, usage);
  }
  std::string begin_choice(int choice) override {
    return head_.chat ? event_text(first_chunk_json(head_, choice)) : std::string();
  }
  std::string piece(const Event& event, const ReplyDelta& delta, bool calls, const Json& session,
                    const ReplyUsage* usage) override {
    Json object = chunk_json(head_, event, delta, calls, logs_);
    if (!session.is_null()) object["session"] = session;
    if (usage != nullptr && !include_usage_)
      object["timings"] = timings_json(*usage);
    else if (!timings_.is_null())
      object["timings"] = std::exchange(timings_, nullptr);
    return event_text(object);
  }
  std::string progress(int choice, const PromptProgress& progress, long long tokens, double ms) override {
    Json one = {{"index", choice}};
    one[head_.chat ? "delta" : "text"] = head_.chat ? Json::object() : Json("");
    one["finish_reason"] = nullptr;
    Json object = piece_json(head_, Json::array({std::move(one)}));
    object["prompt_progress"] = progress_json(progress, tokens, ms);
    return event_text(object);
  }
  void so_far(const ReplyUsage& usage) override { timings_ = timings_json(usage); }
  std::string memory(int choice, const std::string& event) override {
    std::string text = dump(piece_json(head_, Json::array()));
    text.back() = ',';  // instead of the closing brace
    return "data: " + text + "\"memory\":{\"choice\":" + std::to_string(choice) + "," + event.substr(1) + "}\n\n";
  }
  std::string end(const ReplyUsage& usage) override {
    return (include_usage_ ? event_text(usage_chunk_json(head_, usage)) : std::string()) + "data: [DONE]\n\n";
  }
  std::string error(const ApiError& error) override { return event_text(error.json()); }

 private:
  static std::string event_text(const Json& object) { return "data: " + dump(object) + "\n\n"; }

  ReplyHead head_;
  bool logs_, include_usage_;
  Json timings_;  // of the next piece
};

}  // namespace

std::unique_ptr<ReplyWriter> openai_writer(ReplyHead head, bool logs, bool include_usage) {
  return std::make_unique<OpenAiWriter>(std::move(head), logs, include_usage);
}

}  // namespace palimpsest
