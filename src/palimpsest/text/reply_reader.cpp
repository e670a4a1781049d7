#include "palimpsest/text/reply_reader.h"

#include <array>
#include <cstddef>
#include <exception>
#include <string_view>
#include <utility>

#include "palimpsest/core/random_bytes.h"
#include "palimpsest/text/reply_format-inl.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

std::string new_call_id() {
  static constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::array<std::byte, 9> random;  // Mistral's templates take 9 letters
  random_bytes(random);
  std::string id;
  for (const std::byte each : random) id += kLetters[std::to_integer<std::size_t>(each) % kLetters.size()];
  return id;
}

// The part of `now` after `sent`, whole characters only; empty if `now` does not continue it.
std::string rest_of(const std::string& now, std::string& sent, bool last) {
  if (!now.starts_with(sent)) return {};
  std::string rest = now.substr(sent.size());
  if (!last)
    if (const auto bad = invalid_utf8(rest)) rest.resize(*bad);
  sent += rest;
  return rest;
}

}  // namespace

ReplyReader::ReplyReader(std::shared_ptr<const ReplyFormat> format) : format_(std::move(format)) {}

std::optional<ChatMessage> ReplyReader::parse(bool partial) const {
  try {
    common_chat_msg parsed = common_chat_parse(common_chat_input(text_), partial, format_->params);
    ChatMessage message{
        .role = "assistant", .content = std::move(parsed.content), .reasoning = std::move(parsed.reasoning_content)};
    for (common_chat_tool_call& call : parsed.tool_calls)
      message.tool_calls.push_back({std::move(call.id), std::move(call.name), std::move(call.arguments)});
    return message;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

ReplyDelta ReplyReader::put(std::string_view text) {
  if (format_ == nullptr) return {.content = std::string(text), .reasoning = {}, .calls = {}};
  text_ += text;
  if (text_.size() < next_parse_) return {};
  next_parse_ = text_.size() + 1 + text_.size() / 64;
  const auto parsed = parse(true);
  return parsed ? difference(*parsed, false) : ReplyDelta();
}

ReplyDelta ReplyReader::finish(bool complete) {
  if (format_ == nullptr) return {};
  auto parsed = complete ? parse(false) : std::nullopt;
  if (!parsed) parsed = parse(true);
  ReplyDelta delta = parsed ? difference(*parsed, true) : ReplyDelta();
  if (delta.empty() && content_.empty() && reasoning_.empty() && calls_.empty()) delta.content = text_;
  return delta;
}

// A call begins with its arguments: only then is its name complete.
ReplyDelta ReplyReader::difference(const ChatMessage& now, bool last) {
  ReplyDelta delta;
  delta.reasoning = rest_of(now.reasoning, reasoning_, last);
  delta.content = rest_of(now.content, content_, last);
  for (std::size_t i = 0; i < now.tool_calls.size(); ++i) {
    const ToolCall& call = now.tool_calls[i];
    const bool complete = last || i + 1 < now.tool_calls.size();
    if (!format_->tools.contains(call.name) || (call.arguments.empty() && !complete)) break;
    ReplyDelta::Call step{.index = i, .id = {}, .name = {}, .arguments = {}};
    if (i == calls_.size()) {
      step.id = call.id.empty() ? new_call_id() : call.id;
      step.name = call.name;
      calls_.push_back({.id = step.id, .name = call.name, .arguments = {}});
    }
    step.arguments = rest_of(complete && call.arguments.empty() ? "{}" : call.arguments, calls_[i].arguments, complete);
    if (!step.id.empty() || !step.arguments.empty()) delta.calls.push_back(std::move(step));
  }
  return delta;
}

}  // namespace palimpsest
