// A conversation as a token stream: gives the text to read for each turn, so that nothing is read twice.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/text/chat_template.h"

namespace palimpsest {

// With most templates the text of a turn does not depend on earlier turns. Then no messages are kept, and the
// conversation may continue indefinitely. With other templates (those that rewrite earlier turns) all messages are
// kept.
class Conversation {
 public:
  // `system` may be empty. Throws Error if the template refuses such conversations.
  Conversation(std::shared_ptr<const ChatTemplate> chat_template, std::string system);

  struct Turn {
    std::string text;                      // to read before the answer; control tokens are in their text form
    std::vector<std::size_t> breaks = {};  // as in ChatPrompt
    bool restart = false;                  // `text` is the whole conversation: clear the model's context first
  };
  // Adds a user message and returns the text that follows everything read and answered so far. `restart` for the first
  // turn, and if the template rewrote earlier turns.
  Turn user(const std::string& text);
  // Adds the model's answer, complete or not, without an end token.
  void assistant(const std::string& text);
  void reset();

  bool keeps_messages() const { return !turns_are_independent_; }

 private:
  std::vector<ChatMessage> beginning() const;  // the system message, if any

  std::shared_ptr<const ChatTemplate> template_;
  std::string system_;
  bool turns_are_independent_ = false;
  bool begun_ = false;
  std::vector<ChatMessage> messages_;  // this and the next two: only with keeps_messages()
  std::string read_;                   // the whole text up to the last answer
  std::string answer_;                 // the last answer
};

}  // namespace palimpsest
