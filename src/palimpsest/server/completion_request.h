// Parses and validates the body of /v1/completions and /v1/chat/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/request.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct CompletionRequest {
  bool chat = false;
  std::vector<SharedTokens> prompts;
  int n = 1;  // answers to each prompt
  bool stream = false, include_usage = false;
  bool echo_logs = false;         // the answers begin with the prompts, with log probabilities
  std::vector<std::string> echo;  // the text of each prompt, returned before its answers; empty: no echo
  std::vector<std::string> stop;
  std::string restore, save;  // names of the sessions to restore and to save; empty: none
  bool has_cache = false;     // false: a restored session keeps its method
  bool pin_prompts = false;   // each prompt is never evicted. In chats: `request.method` pins the system prompt
  bool tokens = false;        // events have the tokens of the answers
  Request request;            // without a prompt
  // Of chats: how replies are taken apart; nullptr: they are content only.
  std::shared_ptr<const ReplyFormat> format;
  std::vector<TokenId> reply_tokens;  // control tokens that are part of a reply's text
};

inline constexpr int kMaxChoices = 128;  // answers to one HTTP request

// Throws ApiError or Error that names the invalid field.
CompletionRequest parse_completion(const Json& body, bool chat, const ServedModel& model);

// `name`: the request's "model". Throws ApiError unless it is the served one's, or any name is accepted.
void check_model(const std::string& name, const ServedModel& model);
ApiError no_model(const std::string& name, const ServedModel& model);  // a 404

// "h2o:budget=512" or {"method": "h2o", "budget": 512, ...}: any key of parse_method, but for "pin": true or false.
// Options that name a file (split, scorer) are refused.
Method parse_cache(const Json& value, const Method& fallback);

}  // namespace palimpsest
