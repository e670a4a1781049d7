// The body of /v1/completions and /v1/chat/completions, understood and checked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/request.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct ServedModel {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string name;              // what clients call it
  std::string chat_template;     // empty: the model's own
  Method method;                 // of requests that name none
  long long chat_tokens = 1024;  // of chat answers that name no limit; completions have 16, as at OpenAI
};

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<TokenId>> prompts;
  int n = 1;  // answers to each prompt
  bool stream = false, include_usage = false;
  std::vector<std::string> echo;  // of each prompt the text that goes before its answers; empty: none
  std::vector<std::string> stop;
  std::string restore, save;   // sessions to go on from, and to keep the sequence as; empty: none
  bool chooses_cache = false;  // else a restored session's own method is meant
  Request request;             // without a prompt
};

inline constexpr int kMaxChoices = 128;  // answers to one HTTP request

// Throws ApiError or Error that says which field is wrong.
CompletionRequest parse_completion(const Json& body, bool chat, const ServedModel& model);

// "h2o:budget=512" or {"method": "h2o", "budget": 512, ...}: any key of parse_method but split, which names a file.
Method parse_cache(const Json& value, const Method& fallback);

// The messages of a chat as the text that the model reads. Throws ApiError.
std::string chat_text(const Json& messages, const ServedModel& model);

}  // namespace palimpsest
