// Keeps control tokens out of the texts of messages: <|im_end|> in a user's text must not end the user's turn. A mark,
// a character that no message has, is written into such texts; the chat template copies it into its text, and is then
// taken out of that again: what is left are offsets that no control token may cross (ChatPrompt::breaks).
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/text/chat.h"

namespace palimpsest {

// A character of Unicode's private use area that `texts` do not have. Throws Error if they have all of them.
std::string unused_character(const std::vector<std::string_view>& texts);

class MessageMarks {
 public:
  // `controls`: the texts of a vocabulary's control tokens.
  explicit MessageMarks(const std::vector<std::string>& controls);

  // Where `text` needs a mark: inside each control token's text that is not `allowed`, and after an end that is the
  // beginning of one, which the text behind might complete. White space at the end is not counted: templates trim it.
  std::vector<std::size_t> places(std::string_view text, const std::set<std::string>& allowed = {}) const;

  // The chat with marks in contents, reasoning, calls and tools. `of_replies`: control tokens that replies are made of;
  // messages of the assistant may have them. `source`: of the template. Returns the mark; empty: nothing needed one,
  // and `chat` is as before.
  std::string mark(ChatInput& chat, const std::set<std::string>& of_replies, std::string_view source) const;

  // Takes the marks out of the template's text; returns where they were.
  static std::vector<std::size_t> take_out(std::string& text, const std::string& mark);

 private:
  // A trie of the controls. Its first node is the root.
  struct Node {
    std::vector<std::pair<char, std::size_t>> next;
    bool is_control = false;
  };
  const Node* child(const Node& node, char c) const;

  std::vector<Node> nodes_;
};

}  // namespace palimpsest
