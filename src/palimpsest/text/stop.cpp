#include "palimpsest/text/stop.h"

#include <algorithm>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail("a stop string is empty: leave it out, or give it at least one character");
    if (invalid_utf8(stop)) fail("the stop string '{}' is not valid UTF-8", stop);
  }
}

std::string StopStrings::put(std::string_view text) {
  if (found()) return {};
  held_ += text;

  std::size_t end = std::string::npos, begin = 0;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
      end = at + stop.size();
      begin = at;
    }
  }
  if (end != std::string::npos) {
    word_ = held_.substr(begin, end - begin);
    held_.resize(begin);
    return std::exchange(held_, {});
  }

  // The longest suffix of the text that is a prefix of a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (!held_.ends_with(std::string_view(stop).substr(0, n))) continue;
      keep = n;
      break;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace palimpsest
