#include "palimpsest/text/utf8.h"

#include <utility>

namespace palimpsest {
namespace {

struct Sequence {
  int bytes;  // length of the character, or of the maximal ill-formed subpart
  enum { kWhole, kInvalid, kCutOff } state;
};

// The first sequence of `text` (not empty). The valid range of the second byte depends on the first (Unicode 15, table
// 3-7), which excludes overlong forms, surrogates and everything beyond U+10FFFF.
Sequence first_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, Sequence::kWhole};
  if (lead < 0xC2 || lead > 0xF4) return {1, Sequence::kInvalid};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == text.size()) return {i, Sequence::kCutOff};
    const unsigned next = byte(static_cast<std::size_t>(i));
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {i, Sequence::kInvalid};
  }
  return {length, Sequence::kWhole};
}

}  // namespace

std::string Utf8Stream::put(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::exchange(pending_, {}).append(bytes);
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    const std::string_view part = bytes.substr(0, static_cast<std::size_t>(sequence.bytes));
    if (sequence.state == Sequence::kCutOff) {
      pending_ = part;
      break;
    }
    out += sequence.state == Sequence::kWhole ? part : kReplacement;
    bytes.remove_prefix(part.size());
  }
  return out;
}

std::string Utf8Stream::finish() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(kReplacement);
}

std::string whole_characters(std::string_view bytes) {
  Utf8Stream characters;
  std::string text = characters.put(bytes);
  text += characters.finish();
  return text;
}

std::optional<std::size_t> invalid_utf8(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    const Sequence sequence = first_sequence(text.substr(offset));
    if (sequence.state != Sequence::kWhole) return offset;
    offset += static_cast<std::size_t>(sequence.bytes);
  }
  return std::nullopt;
}

}  // namespace palimpsest
