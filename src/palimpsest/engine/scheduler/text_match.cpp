#include "palimpsest/engine/scheduler/text_match.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace palimpsest {
namespace {

// Walks over tokens, byte by byte where needed.
class TokenBytes {
 public:
  TokenBytes(std::span<const TokenId> tokens, const Vocabulary& vocabulary)
      : tokens_(tokens), vocabulary_(vocabulary) {}

  bool inside() const { return !rest_.empty(); }  // of a token
  bool at_end() const { return rest_.empty() && index_ == tokens_.size(); }
  bool at_control() const { return rest_.empty() && index_ < tokens_.size() && vocabulary_.is_control(token()); }
  TokenId token() const { return tokens_[index_]; }
  std::size_t index() const { return index_; }  // tokens passed, the one inside included
  void pass() { ++index_; }
  std::string_view bytes() {  // of this token that are not passed
    if (rest_.empty()) {
      piece_ = vocabulary_.piece(tokens_[index_++], true);
      rest_ = piece_;
    }
    return rest_;
  }
  void pass_bytes(std::size_t count) { rest_.remove_prefix(count); }

 private:
  std::span<const TokenId> tokens_;
  const Vocabulary& vocabulary_;
  std::size_t index_ = 0;
  std::string piece_;
  std::string_view rest_;
};

// Tokens of a part of a token; empty: the vocabulary has none with exactly these bytes.
std::vector<TokenId> split(std::string_view bytes, const Vocabulary& vocabulary) {
  std::vector<TokenId> tokens = vocabulary.tokenize(bytes, false, false);
  std::string text;
  for (const TokenId token : tokens) text += vocabulary.piece(token, true);
  if (text != bytes) tokens.clear();
  return tokens;
}

}  // namespace

std::optional<Continuation> continuation(std::span<const TokenId> read, std::span<const TokenId> prompt,
                                         const Vocabulary* vocabulary) {
  const auto [a, b] = std::ranges::mismatch(read, prompt);
  const auto same = static_cast<std::size_t>(a - read.begin());
  Continuation out{.matched = same, .rest = {}};
  if (a != read.end()) {
    if (vocabulary == nullptr || b == prompt.end()) return std::nullopt;
    TokenBytes left(read.subspan(same), *vocabulary), right(prompt.subspan(same), *vocabulary);
    while (!left.at_end()) {
      if (right.at_end()) return std::nullopt;
      if (left.at_control() || right.at_control()) {
        if (left.inside() || right.inside() || left.token() != right.token()) return std::nullopt;
        left.pass();
        right.pass();
        continue;
      }
      const std::string_view l = left.bytes(), r = right.bytes();
      const std::size_t both = std::min(l.size(), r.size());
      if (l.substr(0, both) != r.substr(0, both)) return std::nullopt;
      left.pass_bytes(both);
      right.pass_bytes(both);
    }
    out.matched = same + right.index();
    if (right.inside()) {
      --out.matched;
      out.rest = split(right.bytes(), *vocabulary);
      if (out.rest.empty()) return std::nullopt;
    }
  }
  const auto more = prompt.subspan(out.matched + (out.rest.empty() ? 0 : 1));
  out.rest.insert(out.rest.end(), more.begin(), more.end());
  return out;
}

}  // namespace palimpsest
