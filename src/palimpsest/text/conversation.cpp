#include "palimpsest/text/conversation.h"

#include <utility>

namespace palimpsest {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

}  // namespace

Conversation::Conversation(const Vocabulary& vocabulary, std::string system, std::string chat_template)
    : vocabulary_(vocabulary), system_(std::move(system)), template_(std::move(chat_template)) {
  reset();
  vocabulary_.apply_chat_template({{"user", "x"}}, true, template_);  // throws if there is none
}

void Conversation::reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
  read_.clear();
  answer_.clear();
}

Conversation::Turn Conversation::user(const std::string& text) {
  messages_.push_back({"user", text});
  std::string whole = vocabulary_.apply_chat_template(messages_, true, template_);
  Turn turn{.text = whole, .afresh = true};
  // Many templates trim what was said.
  for (const std::string& answer : {answer_, trimmed(answer_)}) {
    if (read_.empty() || !whole.starts_with(read_ + answer)) continue;
    turn = {.text = whole.substr(read_.size() + answer.size()), .afresh = false};
    break;
  }
  read_ = std::move(whole);
  answer_.clear();
  return turn;
}

void Conversation::assistant(const std::string& text) {
  messages_.push_back({"assistant", text});
  answer_ = text;
}

}  // namespace palimpsest
