#include "palimpsest/text/system_prompt.h"

#include <algorithm>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

template <typename Range>
std::size_t common(const Range& a, const auto& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - std::ranges::begin(a));
}

}  // namespace

std::size_t system_prompt_tokens(const ChatTemplate& chat_template, const Vocabulary& vocabulary, ChatInput chat,
                                 std::span<const TokenId> prompt) {
  const auto is_system = [](const ChatMessage& m) { return m.role == "system" || m.role == "developer"; };
  const auto rest = std::ranges::find_if_not(chat.messages, is_system);
  if (rest == chat.messages.begin() && chat.tools.empty()) return 0;
  chat.messages.erase(rest, chat.messages.end());
  // The text that two chats with this beginning share. The second has two turns.
  const auto prompt_of = [&](const std::vector<ChatMessage>& messages) {
    ChatInput whole = chat;
    whole.messages.insert(whole.messages.end(), messages.begin(), messages.end());
    return chat_template.apply(whole);
  };
  try {
    ChatPrompt head = prompt_of({{"user", "A"}});
    head.text.resize(common(head.text, prompt_of({{"user", "b"}, {"assistant", "c"}, {"user", "d"}}).text));
    std::erase_if(head.breaks, [&](std::size_t at) { return at > head.text.size(); });
    const std::vector<TokenId> tokens = vocabulary.tokenize_with_breaks(head.text, true, head.breaks);
    return common(tokens, prompt);
  } catch (const Error&) {  // the template refuses such a chat
    return 0;
  }
}

}  // namespace palimpsest
