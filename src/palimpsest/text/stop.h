// Stop strings in a stream: text that may be the start of one is held back until it is decided.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// The text ends before the stop string that completes first; of several that end together, before the longest. So the
// result does not depend on how the text was split.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Error for an empty one, or one that is not UTF-8

  std::string put(std::string_view text);  // returns the text to emit now; empty after found()
  std::string finish();                    // returns the text still held back
  bool found() const { return !word_.empty(); }
  const std::string& word() const { return word_; }  // that was found; empty: none

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string word_;
};

}  // namespace palimpsest
