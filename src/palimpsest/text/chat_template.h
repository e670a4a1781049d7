// Chat templates: programs in Jinja, executed by llama.cpp's chat library (docs/decisions/0024-llama-common.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/text/chat.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// Immutable and thread-safe.
class ChatTemplate {
 public:
  // `source`: empty for the model's own, or a name from chat_template_names(), or a file, or the text of a template.
  // `special_in_messages`: control tokens in the texts of messages have an effect; else they are plain text. Throws
  // Error if there is none, or if it is no template.
  static std::shared_ptr<const ChatTemplate> load(std::shared_ptr<const Vocabulary> vocabulary,
                                                  const std::string& source, bool special_in_messages = false);
  ~ChatTemplate();

  // Throws Error if the template refuses the messages (the order of their roles, for instance).
  ChatPrompt apply(const ChatInput& input) const;
  ChatPrompt apply(const std::vector<ChatMessage>& messages, bool add_assistant = true) const;
  std::string text(const std::vector<ChatMessage>& messages, bool add_assistant = true) const;

  // What the template knows of tools. Without descriptions they are in the system prompt; without calls, these have the
  // form of kToolTemplate.
  enum class Tools { kNone, kCalls, kCallsAndDescriptions };
  Tools tools() const;
  const std::string& source() const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::vector<std::string> chat_template_names();

}  // namespace palimpsest
