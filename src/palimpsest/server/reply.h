// Answers in OpenAI's JSON: whole, and in pieces of a stream.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/answer.h"
#include "palimpsest/server/completion_request.h"

namespace palimpsest {

struct ReplyHead {  // what every object of one reply has in common
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

const char* finish_reason(Finish finish);  // "stop" or "length"; nullptr: it did not end well
Json usage_json(const ReplyUsage& usage);

Json whole_json(const ReplyHead& head, const std::vector<Choice>& choices, bool logs, const ReplyUsage& usage);

// Of a stream: `first` opens a choice (chats only), an event continues or ends it, the usage comes last.
Json first_json(const ReplyHead& head, int choice);
Json event_json(const ReplyHead& head, const Event& event, bool logs);
Json last_json(const ReplyHead& head, const ReplyUsage& usage);

}  // namespace palimpsest
