// JSON of memory updates in a stream ("memory_events"); docs/server.md describes it.
#pragma once

#include <string>

#include "palimpsest/engine/sequence/memory_update.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// The texts of a stream of tokens: a character that several tokens write belongs to the last of them.
class TokenSplitter {
 public:
  explicit TokenSplitter(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  std::string text(TokenId token) { return token < 0 ? std::string() : utf8_.put(vocabulary_.piece(token, true)); }

 private:
  const Vocabulary& vocabulary_;
  Utf8Stream utf8_;
};

// The object of an update, as text: it is written often.
std::string memory_event(const MemoryUpdate& update, TokenSplitter& texts);

}  // namespace palimpsest
