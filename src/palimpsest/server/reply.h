// Responses in OpenAI's JSON: complete objects and stream chunks.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/answer.h"
#include "palimpsest/server/completion_request.h"

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
  std::string text;
  std::vector<TokenLog> logs;
  Finish finish = Finish::kCancelled;
};

const char* finish_reason(Finish finish);  // "stop" or "length"; nullptr: failed or cancelled
Json usage_json(const ReplyUsage& usage);

Json completion_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage);

// Chunks of a stream, in order: first_chunk_json for each choice (chats only), chunk_json for each event,
// usage_chunk_json with the usage.
Json first_chunk_json(const ReplyHead& head, int choice);
Json chunk_json(const ReplyHead& head, const Event& event, bool logs);
Json usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage);

}  // namespace palimpsest
