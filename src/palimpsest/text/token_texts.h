// The texts of a vocabulary's tokens, sorted, so that a grammar checks a prefix shared by several tokens once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

class TokenTexts {
 public:
  // texts [tokens]; empty: none, for control tokens and end tokens.
  explicit TokenTexts(const std::vector<std::string>& texts);

  // Bytes; may be empty.
  std::string_view operator[](TokenId token) const { return text_at(index_[static_cast<std::size_t>(token)]); }
  std::size_t longest() const { return longest_; }

  // Tokens with a text, in the order of their texts.
  struct Entry {
    TokenId token = 0;
    std::uint32_t begin = 0, length = 0;
    std::uint32_t shared = 0;  // length of the prefix shared with the previous entry
  };
  const std::vector<Entry>& entries() const { return entries_; }
  std::string_view text(const Entry& entry) const { return std::string_view(bytes_).substr(entry.begin, entry.length); }

 private:
  std::string_view text_at(std::uint32_t index) const {
    return index == kNoText ? std::string_view() : text(entries_[index]);
  }
  static constexpr std::uint32_t kNoText = ~std::uint32_t{0};
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> index_;  // [tokens] index in entries_
  std::size_t longest_ = 0;
};

}  // namespace palimpsest
