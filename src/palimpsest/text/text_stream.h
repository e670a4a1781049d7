// Tokens become text: whole UTF-8 characters, up to the first stop string. `run`, `chat`, the server and `eval` all
// show what this gives them.
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
  bool begins_text = false;  // nothing comes before it: the space that some vocabularies put there is left out
};

class TextStream {
 public:
  using Options = TextStreamOptions;
  // The vocabulary must outlive it. Throws Error for bad stop strings.
  explicit TextStream(const Vocabulary& vocabulary, Options options = {});

  // What may be shown now. Parts of characters, and what may turn out to be a stop string, are held back.
  std::string put(TokenId token);
  std::string finish();  // what was held back in vain; at the end, once
  bool stopped() const { return stops_.found(); }

  const std::string& bytes() const { return bytes_; }  // of the last token; may end inside a character
  long long begin() const { return begin_; }           // where its text begins, in characters of the whole text

 private:
  const Vocabulary& vocabulary_;
  StopStrings stops_;
  Utf8Stream characters_;
  bool at_begin_;
  std::string bytes_;
  long long begin_ = 0, end_ = 0;
};

long long count_characters(std::string_view utf8);

// Whether a prompt is nothing but control tokens, so that what follows begins a text.
bool only_control_tokens(const Vocabulary& vocabulary, std::span<const TokenId> prompt);

}  // namespace palimpsest
