// A conversation as a stream: what the model has to read next, turn by turn, so that nothing is read twice.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

class Conversation {
 public:
  // `system` may be empty; `chat_template` as in Vocabulary::apply_chat_template. Throws Error for a bad template.
  Conversation(const Vocabulary& vocabulary, std::string system, std::string chat_template);

  struct Turn {
    std::string text;     // to be read before the answer; control tokens in it are spelled out
    bool afresh = false;  // the model has to forget everything first: this is the whole conversation
  };
  // The user speaks: what follows everything said so far, the answers included. A template that rewrites earlier turns
  // leads to a turn `afresh`, as the first one is.
  Turn user(const std::string& text);
  // What the model answered, as far as it got (without an end token).
  void assistant(const std::string& text);
  void reset();

 private:
  const Vocabulary& vocabulary_;
  std::string system_, template_;
  std::vector<ChatMessage> messages_;
  std::string read_;    // the whole text up to the last answer
  std::string answer_;  // after it
};

}  // namespace palimpsest
