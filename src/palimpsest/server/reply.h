// Responses in OpenAI's JSON: complete objects and stream chunks.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/answer.h"
#include "palimpsest/server/completion_request.h"
#include "palimpsest/text/chat.h"

namespace palimpsest {

struct ReplyHead {  // shared by all objects of one reply
  bool chat = false;
  std::string id, model;
  long long created = 0;
};

struct ReplyUsage {
  long long prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, evicted_tokens = 0;
  DraftCounts drafts;
};

struct Choice {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<TokenLog> logs;
  Finish finish = Finish::kCancelled;
};

// "stop", "length" or "tool_calls" (the reply `calls` a tool); nullptr: failed or cancelled.
const char* finish_reason(Finish finish, bool calls = false);
Json usage_json(const ReplyUsage& usage);

void add(const ReplyDelta& delta, Choice& choice);

Json completion_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage);

// Chunks of a stream, in order: first_chunk_json for each choice (chats only), chunk_json for each event,
// usage_chunk_json with the usage.
Json first_chunk_json(const ReplyHead& head, int choice);
// `delta`: what is new in the event's text.
Json chunk_json(const ReplyHead& head, const Event& event, const ReplyDelta& delta, bool calls, bool logs);
Json usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage);

}  // namespace palimpsest
