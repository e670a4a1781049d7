#include "palimpsest/text/conversation.h"

#include <optional>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

// What `whole` has after `read` and `answer`; nullopt if the template changed earlier text.
std::optional<Conversation::Turn> rest_of(const ChatPrompt& whole, const std::string& read, const std::string& answer) {
  for (const std::string& said : {answer, trimmed(answer)}) {  // many templates trim answers
    if (!whole.text.starts_with(read + said)) continue;
    const std::size_t begin = read.size() + said.size();
    Conversation::Turn rest{.text = whole.text.substr(begin)};
    for (const std::size_t at : whole.breaks)
      if (at > begin) rest.breaks.push_back(at - begin);
    return rest;
  }
  return std::nullopt;
}

}  // namespace

Conversation::Conversation(std::shared_ptr<const ChatTemplate> chat_template, std::string system)
    : template_(std::move(chat_template)), system_(std::move(system)) {
  // Compare the second turn with the third, after answers of different lengths.
  std::vector<ChatMessage> messages = beginning();
  std::optional<Turn> turns[2];
  messages.push_back({"user", "first words"});
  std::string read = template_->text(messages);
  for (auto& turn : turns) {
    messages.push_back({"assistant", &turn == turns ? "yes" : "no, not at all"});
    messages.push_back({"user", "some more"});
    ChatPrompt whole = template_->apply(messages);
    turn = rest_of(whole, read, messages[messages.size() - 2].content);
    read = std::move(whole.text);
  }
  turns_are_independent_ = turns[0] && turns[1] && turns[0]->text == turns[1]->text;
  reset();
}

std::vector<ChatMessage> Conversation::beginning() const {
  if (system_.empty()) return {};
  return {{"system", system_}};
}

void Conversation::reset() {
  messages_ = beginning();
  begun_ = false;
  read_.clear();
  answer_.clear();
}

Conversation::Turn Conversation::user(const std::string& text) {
  if (turns_are_independent_ && std::exchange(begun_, true)) {
    std::vector<ChatMessage> messages = beginning();
    messages.push_back({"user", "x"});
    const std::string read = template_->text(messages);
    messages.push_back({"assistant", "y"});
    messages.push_back({"user", text});
    if (auto rest = rest_of(template_->apply(messages), read, "y")) return std::move(*rest);
    fail("the chat template cannot append this message to the conversation: rephrase it");
  }
  messages_.push_back({"user", text});
  ChatPrompt whole = template_->apply(messages_);
  Turn turn{.text = whole.text, .breaks = whole.breaks, .restart = true};
  if (turns_are_independent_) {
    messages_ = beginning();
    return turn;
  }
  if (!read_.empty())
    if (auto rest = rest_of(whole, read_, answer_)) turn = std::move(*rest);
  read_ = std::move(whole.text);
  answer_.clear();
  return turn;
}

void Conversation::assistant(const std::string& text) {
  if (turns_are_independent_) return;
  messages_.push_back({"assistant", text});
  answer_ = text;
}

}  // namespace palimpsest
