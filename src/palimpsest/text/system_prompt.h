// Where a chat's system prompt and its tools are in its prompt.
#pragma once

#include <span>

#include "palimpsest/text/chat_template.h"

namespace palimpsest {

// How many of the first tokens of `prompt` (the whole chat) the template writes before the first message that is not
// the system's: system prompt, tool definitions, and text around them. It does not depend on later messages, so it is
// the same in every turn. 0: the chat has neither, or its template writes them elsewhere (Mistral's: with the last
// message of the user).
std::size_t system_prompt_tokens(const ChatTemplate& chat_template, const Vocabulary& vocabulary, ChatInput chat,
                                 std::span<const TokenId> prompt);

}  // namespace palimpsest
