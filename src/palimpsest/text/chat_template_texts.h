// The chat templates that --chat-template names.
#pragma once

#include <span>
#include <string_view>

namespace palimpsest {

struct NamedTemplate {
  std::string_view name, text;
};
std::span<const NamedTemplate> named_templates();

// ChatML with tools: calls are JSON objects between <tool_call> and </tool_call>. Its tool calls are those of
// templates without tools.
extern const std::string_view kToolTemplate;

}  // namespace palimpsest
