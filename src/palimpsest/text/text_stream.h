// Converts a stream of tokens to text: whole UTF-8 characters, up to the first stop string. Used by `run`, `chat`, the
// server and `eval`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/stop.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct TextStreamOptions {
  std::vector<std::string> stop = {};  // the text ends before the first of these
  std::vector<TokenId> shown = {};     // control tokens that are text
  bool begins_text = false;            // at the start of a text: omits the leading space that some vocabularies add
};

class TextStream {
 public:
  using Options = TextStreamOptions;
  // The vocabulary must outlive it. Throws Error for bad stop strings.
  explicit TextStream(const Vocabulary& vocabulary, Options options = {});

  // Returns the text to emit now. Holds back incomplete characters and possible starts of stop strings.
  std::string put(TokenId token);
  std::string finish();  // returns the text still held back; call once, at the end
  bool stopped() const { return stops_.found(); }
  const std::string& stop_word() const { return stops_.word(); }  // that stopped the text; empty: none

  const std::string& bytes() const { return bytes_; }  // of the last token; may end inside a character
  long long begin() const { return begin_; }           // start of its text, in characters of the whole text

 private:
  const Vocabulary& vocabulary_;
  StopStrings stops_;
  Utf8Stream characters_;
  std::vector<TokenId> shown_;
  bool at_begin_;
  std::string bytes_;
  long long begin_ = 0, end_ = 0;
};

long long count_characters(std::string_view utf8);

// Whether a prompt has only control tokens, so that the next token begins a text.
bool only_control_tokens(const Vocabulary& vocabulary, std::span<const TokenId> prompt);

}  // namespace palimpsest
