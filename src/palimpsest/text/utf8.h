// UTF-8 in streams: a token may end inside a character; text for a terminal or a JSON string may not.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace palimpsest {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes in, whole characters out. Invalid bytes become U+FFFD, one for each maximal subpart of an ill-formed sequence
// (Unicode 15, table 3-8; as browsers and Python do). The output does not depend on how the input was split.
class Utf8Stream {
 public:
  std::string put(std::string_view bytes);
  std::string finish();  // the rest: at most one U+FFFD

 private:
  std::string pending_;  // the start of a character, at most 3 bytes
};

// The same for all bytes at once.
std::string whole_characters(std::string_view bytes);

// Byte offset of the first ill-formed sequence; nullopt if the text is valid.
std::optional<std::size_t> invalid_utf8(std::string_view text);

}  // namespace palimpsest
