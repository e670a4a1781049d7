// The model that a server serves, and the defaults of its requests.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/core/pooling.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/sampler_options.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct ServedModel {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::string name;                                   // model id in the API
  std::vector<std::string> aliases = {};              // other names
  bool strict = false;                                // requests for another name are refused
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: the model has none, and chats are refused
  Method method;                                      // default for requests without "cache"
  Pooling pooling = Pooling::kMean;                   // of embeddings; kNone: they are refused
  int width = 0;                                      // of embeddings; set by Service
  int trained_context = 0;                            // likewise, in tokens
  bool encodes = false;                 // an encoder: texts have the tokens of its vocabulary at both ends
  bool ranks = false;                   // by its own head, and gives no embeddings
  int auto_budget = kAutoBudget;        // of method auto, in tokens; set by Service
  long long default_max_tokens = 1024;  // default max_tokens of chats; -1: up to the trained context
  // The default limit of completions; nullopt: 16 as in OpenAI's API, and no limit in llama-server's /completion.
  std::optional<long long> completion_max_tokens = {};
  SamplerOptions sampling = {};       // what requests leave out
  std::optional<bool> thinking = {};  // replies begin with a reasoning; nullopt: as the chat template has it
  bool reasoning_in_content = false;  // it is not taken out of the replies
  int context = 0;                    // of texts whose method keeps every token, in tokens; 0: not limited

  bool has_name(const std::string& given) const {
    return given == name || std::ranges::find(aliases, given) != aliases.end();
  }
};

}  // namespace palimpsest
