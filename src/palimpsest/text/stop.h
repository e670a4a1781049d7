// Stop strings in a stream: text that may be the beginning of one is held back until it is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// The text ends where the stop string begins that is complete first (of several that end together, the longest).
// So the result does not depend on how the text was cut into pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Error for an empty one, or one that is not UTF-8

  std::string put(std::string_view text);  // what may be shown now; nothing more after `found`
  std::string finish();                    // the text that was held back in vain
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace palimpsest
