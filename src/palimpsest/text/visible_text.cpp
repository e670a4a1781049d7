#include "palimpsest/text/visible_text.h"

#include <fmt/format.h>

#include <iterator>

#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

// Requires: a whole character of two or three bytes.
unsigned code_point(std::string_view c) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(c[i]); };
  return c.size() == 2 ? (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU)
                       : (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
}

bool reorders_or_hides(unsigned c) {
  return c == 0x061C || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
         c == 0xFEFF;
}

}  // namespace

std::string visible_text(std::string_view text) {
  const std::string whole = whole_characters(text);
  std::string out;
  out.reserve(whole.size());
  for (std::size_t i = 0; i < whole.size();) {
    const auto first = static_cast<unsigned char>(whole[i]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    const std::string_view c = std::string_view(whole).substr(i, length);
    i += length;
    if (length == 1 && (first == 0x7F || (first < 0x20 && first != '\n' && first != '\t'))) {
      const unsigned picture = first == 0x7F ? 0x21 : first;  // U+2400 + picture
      out += {'\xE2', '\x90', static_cast<char>(0x80 + picture)};
    } else if (length == 2 && code_point(c) < 0xA0) {
      out += kReplacement;
    } else if ((length == 2 || length == 3) && reorders_or_hides(code_point(c))) {
      fmt::format_to(std::back_inserter(out), "<U+{:04X}>", code_point(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace palimpsest
