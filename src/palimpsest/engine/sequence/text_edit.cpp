#include "palimpsest/engine/sequence/text_edit.h"

#include <array>
#include <cassert>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"

namespace palimpsest {
namespace {

constexpr std::array<std::string_view, 2> kModes = {"reuse", "exact"};  // in the order of EditMode

}  // namespace

EditMode parse_edit_mode(std::string_view text) {
  return static_cast<EditMode>(parse_choice(text, "the mode of an edit", kModes));
}

std::string_view name_of(EditMode mode) {
  return kModes[static_cast<std::size_t>(mode)];
}

WrittenEdit parse_edit(std::string_view text) {
  const auto equals = text.find('='), colon = text.substr(0, equals).find(':');
  if (equals == std::string_view::npos || colon == std::string_view::npos)
    fail("the edit '{}' is not A:B=TEXT: the positions A to B - 1 and the text in their place", text);
  const auto position = [&](std::string_view number) {
    return parse_integer(number, "a position of the edit", 0, kEndOfText - 1);
  };
  return {.range = {position(text.substr(0, colon)), position(text.substr(colon + 1, equals - colon - 1))},
          .text = text.substr(equals + 1)};
}

std::vector<TokenId> edited(std::span<const TokenId> text, PositionRange range, std::span<const TokenId> tokens) {
  assert(range.first >= 0 && range.first <= range.last && range.last <= std::ssize(text));
  std::vector<TokenId> after(text.begin(), text.begin() + range.first);
  after.insert(after.end(), tokens.begin(), tokens.end());
  after.insert(after.end(), text.begin() + range.last, text.end());
  return after;
}

}  // namespace palimpsest
