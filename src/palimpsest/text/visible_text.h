// Text of a model or a client, made safe to print: a terminal executes escape sequences, and marks of direction reorder
// what is read.
#pragma once

#include <string>
#include <string_view>

namespace palimpsest {

// Control characters except newline and tab become their pictures (U+2400 ..., U+FFFD for those of C1), marks of
// direction and invisible characters become <U+202E>. `text`: valid UTF-8; invalid bytes become U+FFFD.
std::string visible_text(std::string_view text);

}  // namespace palimpsest
