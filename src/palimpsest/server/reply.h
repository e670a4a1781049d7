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
};

struct Choice {
  std::string text;
  std::vector<TokenLog> logs;
  Finish finish = Finish::kCancelled;
};

const char* finish_reason(Finish finish);  // "stop" or "length"; nullptr: failed or cancelled
Json usage_json(const ReplyUsage& usage);

Json whole_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage);

// Chunks of a stream, in order: first_json for each choice (chats only), event_json for each event, last_json with the
// usage.
Json first_json(const ReplyHead& head, int choice);
Json event_json(const ReplyHead& head, const Event& event, bool logs);
Json last_json(const ReplyHead& head, const ReplyUsage& usage);

}  // namespace palimpsest
