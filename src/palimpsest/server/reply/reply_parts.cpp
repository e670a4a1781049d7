#include "palimpsest/server/reply/reply_parts.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/core/version.h"

namespace palimpsest {

void add(const ReplyDelta& delta, Choice& choice) {
  choice.text += delta.content;
  choice.reasoning += delta.reasoning;
  for (const ReplyDelta::Call& call : delta.calls) {
    if (call.index == choice.calls.size()) choice.calls.push_back({.id = call.id, .name = call.name, .arguments = {}});
    choice.calls[call.index].arguments += call.arguments;
  }
}

const char* finish_reason(Finish finish, bool calls) {
  switch (finish) {
    case Finish::kEnd:
    case Finish::kStopped:
      return calls ? "tool_calls" : "stop";
    case Finish::kLength:
      return "length";
    default:
      return nullptr;
  }
}

ApiError error_of(Finish finish, const Usage& usage) {
  switch (finish) {
    case Finish::kDeadline:
      return {504, "timeout_error", "the answer took longer than the server allows (--timeout)", "", "timeout"};
    case Finish::kCancelled:
      return {503, "server_error", "the server is shutting down: try another, or again later", "", "shutting_down"};
    default:
      return ApiError(usage.invalid_request ? 400 : 500,
                      usage.invalid_request ? "invalid_request_error" : "server_error",
                      shortened(without_folders(usage.error)))
          .set_log_text(usage.error);
  }
}

void add_origin(const ReplyUsage& usage, Json& out) {
  if (usage.disk_tokens > 0) out["disk_tokens"] = usage.disk_tokens;
  if (usage.reused_tokens > 0) out["reused_tokens"] = usage.reused_tokens, out["edited_tokens"] = usage.edited_tokens;
}

Json cached_json(const ReplyUsage& usage) {
  Json out = {{"cached_tokens", usage.cached_tokens}};
  add_origin(usage, out);
  return out;
}

Json usage_json(const ReplyUsage& usage) {
  Json out = {
      {"prompt_tokens", usage.prompt_tokens},         {"prompt_tokens_details", cached_json(usage)},
      {"completion_tokens", usage.completion_tokens}, {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"evicted_tokens", usage.evicted_tokens},       {"cache_method", usage.method}};
  if (const DraftCounts& drafts = usage.drafts; drafts.steps > 0)
    out["completion_tokens_details"] = {{"accepted_prediction_tokens", drafts.accepted},
                                        {"rejected_prediction_tokens", drafts.drafts - drafts.accepted}};
  return out;
}

// The prompt's time begins after the queue, and ends with the first token.
Json timings_json(const ReplyUsage& usage) {
  const auto rates = [](const char* name, long long tokens, double ms, Json& out) {
    const std::string prefix = name;
    const auto count = static_cast<double>(tokens);
    out[prefix + "_n"] = tokens;
    out[prefix + "_ms"] = ms;
    out[prefix + "_per_token_ms"] = tokens > 0 ? ms / count : 0;
    out[prefix + "_per_second"] = ms > 0 ? 1000 * count / ms : 0;
  };
  Json out = {{"cache_n", usage.cached_tokens}};
  rates("prompt", usage.prompt_tokens - usage.cached_tokens, std::max(usage.ttft_ms - usage.queue_ms, 0.0), out);
  rates("predicted", usage.completion_tokens, std::max(usage.total_ms - usage.ttft_ms, 0.0), out);
  if (const DraftCounts& drafts = usage.drafts; drafts.steps > 0) {
    out["draft_n"] = drafts.drafts;
    out["draft_n_accepted"] = drafts.accepted;
  }
  return out;
}

Json progress_json(const PromptProgress& progress, long long tokens, double ms) {
  return {{"total", tokens}, {"cache", progress.cached}, {"processed", progress.read}, {"time_ms", std::llround(ms)}};
}

Json bytes_json(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string system_fingerprint() {
  return std::string("build-palimpsest-") + version();
}

}  // namespace palimpsest
