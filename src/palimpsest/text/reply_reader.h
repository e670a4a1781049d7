// Takes a reply apart while it is generated: content, reasoning, tool calls.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/text/chat.h"

namespace palimpsest {

class ReplyReader {
 public:
  explicit ReplyReader(std::shared_ptr<const ReplyFormat> format);  // nullptr: content only

  // Appends text that was generated, and returns what is new and certain. Parses the whole text again once it has grown
  // by a 64th, so that the work per character is constant.
  ReplyDelta put(std::string_view text);
  // The rest. `complete`: the model ended the reply; otherwise it may stop anywhere. Text that has not the format
  // becomes content.
  ReplyDelta finish(bool complete);

  bool has_calls() const { return !calls_.empty(); }

 private:
  std::optional<ChatMessage> parse(bool partial) const;
  ReplyDelta difference(const ChatMessage& now, bool last);

  std::shared_ptr<const ReplyFormat> format_;
  std::string text_;
  std::size_t next_parse_ = 1;
  std::string content_, reasoning_;  // this and the next: already returned
  std::vector<ToolCall> calls_;
};

}  // namespace palimpsest
