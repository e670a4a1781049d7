#include "palimpsest/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace palimpsest {

TextStream::TextStream(const Vocabulary& vocabulary, Options options)
    : vocabulary_(vocabulary),
      stops_(std::move(options.stop)),
      shown_(std::move(options.shown)),
      at_begin_(options.begins_text) {}

std::string TextStream::put(TokenId token) {
  bytes_ = std::exchange(at_begin_, false) ? vocabulary_.detokenize({&token, 1}) : vocabulary_.piece(token);
  begin_ = end_;
  const std::string text = characters_.put(bytes_);
  end_ += count_characters(text);
  return stops_.put(text);
}

std::string TextStream::finish() {
  std::string rest = stops_.put(characters_.finish());
  if (!stops_.found()) rest += stops_.finish();
  return rest;
}

long long count_characters(std::string_view utf8) {
  return std::ranges::count_if(utf8, [](char c) { return (c & 0xC0) != 0x80; });
}

bool only_control_tokens(const Vocabulary& vocabulary, std::span<const TokenId> prompt) {
  return std::ranges::all_of(
      prompt, [&](TokenId token) { return token >= 0 && token < vocabulary.size() && vocabulary.is_control(token); });
}

}  // namespace palimpsest
