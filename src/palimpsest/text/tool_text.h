// Tools for chat templates without tools: in the system prompt, and in the text of messages.
#pragma once

#include "palimpsest/text/chat.h"

namespace palimpsest {

// The same chat with the tools described in the system prompt: for templates that have calls, but no descriptions.
ChatInput with_tools_described(const ChatInput& input);

// The same chat without tools, calls and messages of role "tool". The reply's calls have the form of kToolTemplate.
ChatInput with_tools_as_text(const ChatInput& input);

}  // namespace palimpsest
