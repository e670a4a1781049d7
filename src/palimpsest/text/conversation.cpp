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

// The text of `whole` after `read` and `answer`; nullopt if the template changed earlier text.
std::optional<std::string> rest_of(const std::string& whole, const std::string& read, const std::string& answer) {
  for (const std::string& said : {answer, trimmed(answer)})  // many templates trim answers
    if (whole.starts_with(read + said)) return whole.substr(read.size() + said.size());
  return std::nullopt;
}

}  // namespace

Conversation::Conversation(std::shared_ptr<const ChatTemplate> chat_template, std::string system)
    : template_(std::move(chat_template)), system_(std::move(system)) {
  // Compare the second turn with the third, after answers of different lengths.
  std::vector<ChatMessage> messages = beginning();
  std::optional<std::string> turns[2];
  messages.push_back({"user", "first words"});
  std::string read = render(messages);
  for (auto& turn : turns) {
    messages.push_back({"assistant", &turn == turns ? "yes" : "no, not at all"});
    messages.push_back({"user", "some more"});
    std::string whole = render(messages);
    turn = rest_of(whole, read, messages[messages.size() - 2].content);
    read = std::move(whole);
  }
  turns_are_independent_ = turns[0] && turns[1] && *turns[0] == *turns[1];
  reset();
}

std::string Conversation::render(const std::vector<ChatMessage>& messages) const {
  return template_->text(messages);
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
    const std::string read = render(messages);
    messages.push_back({"assistant", "y"});
    messages.push_back({"user", text});
    if (auto rest = rest_of(render(messages), read, "y")) return {.text = std::move(*rest), .restart = false};
    fail("the chat template cannot append this message to the conversation: rephrase it");
  }
  messages_.push_back({"user", text});
  std::string whole = render(messages_);
  if (turns_are_independent_) {
    messages_ = beginning();
    return {.text = std::move(whole), .restart = true};
  }
  Turn turn{.text = whole, .restart = true};
  if (!read_.empty())
    if (auto rest = rest_of(whole, read_, answer_)) turn = {.text = std::move(*rest), .restart = false};
  read_ = std::move(whole);
  answer_.clear();
  return turn;
}

void Conversation::assistant(const std::string& text) {
  if (turns_are_independent_) return;
  messages_.push_back({"assistant", text});
  answer_ = text;
}

}  // namespace palimpsest
