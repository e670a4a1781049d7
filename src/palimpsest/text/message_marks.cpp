#include "palimpsest/text/message_marks.h"

#include <algorithm>
#include <bitset>
#include <nlohmann/json.hpp>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using Json = nlohmann::ordered_json;

// U+E000 to U+F8FF, in UTF-8.
constexpr unsigned kFirstPrivate = 0xE000, kPrivate = 6400;

std::string private_character(unsigned index) {
  const unsigned c = kFirstPrivate + index;
  return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
          static_cast<char>(0x80 | (c & 0x3F))};
}

// Bytes of the character that begins with `first`.
std::size_t length_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::string with_marks(std::string_view text, const std::vector<std::size_t>& places, const std::string& mark) {
  std::string out;
  std::size_t from = 0;
  for (const std::size_t at : places) {
    out.append(text.substr(from, at - from)).append(mark);
    from = at;
  }
  return out.append(text.substr(from));
}

// Calls `edit` for the strings of a JSON text, names of members included; `text` changes only if a string does. A text
// that is no JSON is one string.
template <typename Edit>
void edit_json(std::string& text, const Edit& edit) {
  if (text.empty()) return;
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    edit(text);
    return;
  }
  bool changed = false;
  const auto one = [&](std::string& string) { changed = edit(string) || changed; };
  const auto visit = [&](auto& self, Json& value) -> void {
    if (value.is_string()) one(value.get_ref<std::string&>());
    if (value.is_array())
      for (Json& each : value) self(self, each);
    if (!value.is_object()) return;
    Json::object_t members;
    for (auto& [name, member] : value.get_ref<Json::object_t&>()) {
      std::string key = name;
      one(key);
      self(self, member);
      members.emplace_back(std::move(key), std::move(member));
    }
    value = std::move(members);
  };
  visit(visit, json);
  if (changed) text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Calls `edit(text, of_assistant)` for all texts that come from the messages or describe tools.
template <typename Edit>
void edit_texts(ChatInput& chat, const Edit& edit) {
  const auto plain = [&](std::string& text) { return edit(text, false); };
  for (ChatMessage& message : chat.messages) {
    const bool assistant = message.role == "assistant";
    edit(message.content, assistant);
    edit(message.reasoning, assistant);
    for (ToolCall& call : message.tool_calls) {
      plain(call.id);
      plain(call.name);
      edit_json(call.arguments, plain);
    }
    plain(message.tool_call_id);
    plain(message.name);
  }
  for (Tool& tool : chat.tools) {
    plain(tool.name);
    plain(tool.description);
    edit_json(tool.parameters, plain);
  }
}

}  // namespace

std::string unused_character(const std::vector<std::string_view>& texts) {
  std::bitset<kPrivate> used;
  for (const std::string_view text : texts)
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
      const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[i + at]); };
      if (byte(0) != 0xEE && byte(0) != 0xEF) continue;
      const unsigned c = (byte(0) & 0xFU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
      if (c >= kFirstPrivate && c < kFirstPrivate + kPrivate) used.set(c - kFirstPrivate);
    }
  for (unsigned i = 0; i < kPrivate; ++i)
    if (!used[i]) return private_character(i);
  fail("the messages have all characters of Unicode's private use area: leave one out");
}

MessageMarks::MessageMarks(const std::vector<std::string>& controls) : nodes_(1) {
  for (const std::string& control : controls) {
    if (control.empty() || control.size() == length_of(control.front())) continue;  // nothing is inside
    std::size_t at = 0;
    for (const char c : control) {
      if (const Node* const next = child(nodes_[at], c)) {
        at = static_cast<std::size_t>(next - nodes_.data());
      } else {
        nodes_[at].next.emplace_back(c, nodes_.size());
        at = nodes_.size();
        nodes_.emplace_back();
      }
    }
    nodes_[at].is_control = true;
  }
}

const MessageMarks::Node* MessageMarks::child(const Node& node, char c) const {
  const auto at = std::ranges::find(node.next, c, &std::pair<char, std::size_t>::first);
  return at == node.next.end() ? nullptr : &nodes_[at->second];
}

std::vector<std::size_t> MessageMarks::places(std::string_view text, const std::set<std::string>& allowed) const {
  std::vector<std::size_t> out;
  const std::size_t end = text.find_last_not_of(" \t\n\r\v\f") + 1;
  for (std::size_t i = 0; i < end; ++i) {
    const Node* node = &nodes_.front();
    std::size_t last = i;
    bool inside = false;
    while (!inside && last < end) {
      node = child(*node, text[last]);
      if (node == nullptr) break;
      ++last;
      inside = node->is_control && (allowed.empty() || !allowed.contains(std::string(text.substr(i, last - i))));
    }
    if (inside)
      out.push_back(i + length_of(text[i]));
    else if (node != nullptr && !node->next.empty())  // the text ends inside a control token
      out.push_back(end);
  }
  std::ranges::sort(out);
  const auto twice = std::ranges::unique(out);
  out.erase(twice.begin(), twice.end());
  return out;
}

std::string MessageMarks::mark(ChatInput& chat, const std::set<std::string>& of_replies,
                               std::string_view source) const {
  const std::set<std::string> none;
  bool needed = false;
  std::vector<std::string> decoded;  // strings of JSON
  ChatInput copy = chat;
  edit_texts(copy, [&](std::string& text, bool assistant) {
    needed = needed || !places(text, assistant ? of_replies : none).empty();
    decoded.push_back(text);
    return false;
  });
  if (!needed) return {};
  std::vector<std::string_view> texts(decoded.begin(), decoded.end());
  texts.push_back(source);
  for (const auto& [name, value] : chat.variables) texts.push_back(value);
  const std::string mark = unused_character(texts);
  edit_texts(chat, [&](std::string& text, bool assistant) {
    const std::vector<std::size_t> where = places(text, assistant ? of_replies : none);
    if (!where.empty()) text = with_marks(text, where, mark);
    return !where.empty();
  });
  return mark;
}

std::vector<std::size_t> MessageMarks::take_out(std::string& text, const std::string& mark) {
  std::vector<std::size_t> out;
  std::string clean;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(mark, from)) != std::string::npos; from = at + mark.size()) {
    clean.append(text, from, at - from);
    out.push_back(clean.size());
  }
  clean.append(text, from);
  text = std::move(clean);
  return out;
}

}  // namespace palimpsest
