// An edit of a text that was read: the tokens of a range are replaced.
//
//   text     0 1 2 3 4 5 6 7 8 9         edit(3, 5, {x, y, z})
//   edited   0 1 2 x y z 5 6 7 8 9
//
//   kReuse   reads x y z only, which attend to the tokens before them. The tokens behind keep their keys and values,
//            moved by one position: they were computed from the text before the edit, which is the error
//   kExact   the result is that of a new session which reads the edited text in one prompt. Reads from x on if the
//            cache before is what that session would have there, else the whole text (Sequence::unaffected_until)
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

enum class EditMode { kReuse, kExact };
EditMode parse_edit_mode(std::string_view text);  // "reuse", "exact"; throws Error
std::string_view name_of(EditMode mode);

struct TextEdit {
  PositionRange range;          // the tokens that go
  std::vector<TokenId> tokens;  // that come in their place
  EditMode mode = EditMode::kReuse;
};

// "A:B=TEXT": positions A to B - 1 and the text in their place. Throws Error.
struct WrittenEdit {
  PositionRange range;
  std::string_view text;
};
WrittenEdit parse_edit(std::string_view text);

// The edited text. `range` is in the text.
std::vector<TokenId> edited(std::span<const TokenId> text, PositionRange range, std::span<const TokenId> tokens);

}  // namespace palimpsest
