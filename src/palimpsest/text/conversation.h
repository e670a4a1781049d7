// A conversation as a stream: what the model has to read next, turn by turn, so that nothing is read twice.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// With most templates a turn looks the same whatever was said before. Then nothing of the conversation is kept: it may
// go on for ever. With others (those that rewrite earlier turns) all messages are, as the template needs them.
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

  bool keeps_messages() const { return !rotations_are_alike_; }

 private:
  std::string render(const std::vector<ChatMessage>& messages) const;
  std::vector<ChatMessage> beginning() const;  // the system's message, if there is one

  const Vocabulary& vocabulary_;
  std::string system_, template_;
  bool rotations_are_alike_ = false;
  bool begun_ = false;
  std::vector<ChatMessage> messages_;  // these three only if turns are not alike
  std::string read_;                   // the whole text up to the last answer
  std::string answer_;                 // after it
};

}  // namespace palimpsest
