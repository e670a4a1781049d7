// What replies consist of, in any API.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/reply/answer_listener.h"
#include "palimpsest/server/request/completion_request.h"
#include "palimpsest/text/chat.h"

namespace palimpsest {

struct ReplyHead {  // shared by all objects of one reply
  bool chat = false;
  std::string id, model;
  long long created = 0;
};

struct ReplyUsage {
  long long prompt_tokens = 0, cached_tokens = 0, disk_tokens = 0, reused_tokens = 0, edited_tokens = 0,
            completion_tokens = 0, evicted_tokens = 0;
  DraftCounts drafts;
  std::string method;  // of the cache
  double queue_ms = 0, ttft_ms = 0, total_ms = 0;
};

struct Choice {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<TokenLog> logs;
  std::vector<TokenId> tokens = {};  // if CompletionRequest::tokens
  Finish finish = Finish::kCancelled;
  std::string stop_word = {};  // that ended the text
  Usage usage = {};            // of this choice
};

// Where cached tokens came from, unless it is memory as it was.
void add_origin(const ReplyUsage& usage, Json& out);
// "stop", "length" or "tool_calls" (the reply `calls` a tool); nullptr: failed or cancelled.
const char* finish_reason(Finish finish, bool calls = false);
// Why a reply has no finish reason.
ApiError error_of(Finish finish, const Usage& usage);
Json usage_json(const ReplyUsage& usage);
Json cached_json(const ReplyUsage& usage);  // of the prompt: details of OpenAI's APIs
// llama-server's: of prompt tokens that were read, and of the answers' tokens.
Json timings_json(const ReplyUsage& usage);
Json progress_json(const PromptProgress& progress, long long tokens, double ms);
Json bytes_json(const std::string& bytes);  // [226, 130, ...]
std::string system_fingerprint();           // names the program's version

void add(const ReplyDelta& delta, Choice& choice);

}  // namespace palimpsest
