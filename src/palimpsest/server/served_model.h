// The model that a server serves, and the defaults of its requests.
#pragma once

#include <memory>
#include <string>

#include "palimpsest/core/pooling.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct ServedModel {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string name;                                   // model id in the API
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: the model has none, and chats are refused
  Method method;                                      // default for requests without "cache"
  Pooling pooling = Pooling::kMean;                   // of embeddings; kNone: they are refused
  int auto_budget = kAutoBudget;                      // of method auto, in tokens; set by Service
  long long default_max_tokens = 1024;  // default max_tokens of chats; for completions it is 16, as in OpenAI's API
};

}  // namespace palimpsest
