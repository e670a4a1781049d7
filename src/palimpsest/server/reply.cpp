#include "palimpsest/server/reply.h"

#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

Json bytes_of(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Json chat_logs(const std::vector<TokenLog>& logs) {
  const auto one = [](const std::string& bytes, float logprob) {
    return Json{{"token", whole_characters(bytes)}, {"logprob", logprob}, {"bytes", bytes_of(bytes)}};
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
    out["token_logprobs"].push_back(log.logprob);
    out["text_offset"].push_back(log.offset);
    Json top = Json::object();
    for (const auto& [bytes, logprob] : log.top)
      top.emplace(whole_characters(bytes), logprob);  // of equal texts the likelier one, which is first
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

Json logs_json(bool chat, bool wanted, const std::vector<TokenLog>& logs) {
  if (!wanted) return nullptr;
  return chat ? chat_logs(logs) : text_logs(logs);
}

Json reason_json(Finish finish) {
  const char* reason = finish_reason(finish);
  return reason == nullptr ? Json(nullptr) : Json(reason);
}

Json object_json(const ReplyHead& head, const char* object, Json choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

Json piece_json(const ReplyHead& head, Json choices) {
  return object_json(head, head.chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
}

}  // namespace

const char* finish_reason(Finish finish) {
  switch (finish) {
    case Finish::kEnd:
    case Finish::kStopped:
      return "stop";
    case Finish::kLength:
      return "length";
    default:
      return nullptr;
  }
}

Json usage_json(const ReplyUsage& usage) {
  Json out = {{"prompt_tokens", usage.prompt_tokens},
              {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
              {"completion_tokens", usage.completion_tokens},
              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
              {"evicted_tokens", usage.evicted_tokens}};
  if (const DraftCounts& drafts = usage.drafts; drafts.steps > 0)
    out["completion_tokens_details"] = {{"accepted_prediction_tokens", drafts.accepted},
                                        {"rejected_prediction_tokens", drafts.drafts - drafts.accepted}};
  return out;
}

Json completion_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage) {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    Json one = {{"index", i}};
    if (head.chat)
      one["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    else
      one["text"] = choice.text;
    one["logprobs"] = logs_json(head.chat, logs, choice.logs);
    one["finish_reason"] = reason_json(choice.finish);
    list.push_back(std::move(one));
  }
  Json out = object_json(head, head.chat ? "chat.completion" : "text_completion", std::move(list));
  out["usage"] = usage_json(usage);
  return out;
}

Json first_chunk_json(const ReplyHead& head, int choice) {
  return piece_json(head, Json::array({{{"index", choice},
                                        {"delta", {{"role", "assistant"}, {"content", ""}}},
                                        {"logprobs", nullptr},
                                        {"finish_reason", nullptr}}}));
}

Json chunk_json(const ReplyHead& head, const Event& event, bool logs) {
  Json one = {{"index", event.choice}};
  if (!head.chat)
    one["text"] = event.text;
  else
    one["delta"] = event.text.empty() ? Json::object() : Json{{"content", event.text}};
  one["logprobs"] = logs_json(head.chat, logs && !event.logs.empty(), event.logs);
  one["finish_reason"] = event.last ? reason_json(event.finish) : Json(nullptr);
  return piece_json(head, Json::array({std::move(one)}));
}

Json usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage) {
  Json out = piece_json(head, Json::array());
  out["usage"] = usage_json(usage);
  return out;
}

}  // namespace palimpsest
