// Which queries a policy's window of attention counts: lists of positions, one query at a time. The oracle of
// evict/attention_window.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/policy/signals.h"

namespace palimpsest::testing {

class NaiveWindow {
 public:
  explicit NaiveWindow(const AttentionWindow& window)
      : queries_(at(window.queries)),
        past_(window.past),
        parts_(past_ ? 2 : at(std::min(window.queries, 8))),
        part_(past_ ? queries_ : (queries_ + parts_ - 1) / parts_) {}

  // A step reads the queries from `first` on. `prompt`: the length of the text's prompt; later ones are decoded.
  void read(Position first, int count, Position prompt) {
    const auto last = static_cast<Position>(queries_);
    for (Position query = first; query < first + count; ++query) {
      const bool begins = query == first + count - last || query == prompt - last;
      if (begins || parts.empty() || parts.back().size() == part_) parts.emplace_back();
      parts.back().push_back(query);
      std::erase_if(parts, [](const auto& part) { return part.empty(); });
      while (parts.size() > parts_ || counted() > limit()) parts.erase(parts.begin());
    }
    if (past_ && first + count == prompt && parts.size() == 1) parts.emplace_back();
  }
  bool counts(Position query) const {
    return std::ranges::any_of(parts, [&](const auto& part) { return std::ranges::find(part, query) != part.end(); });
  }
  std::size_t counted() const {
    std::size_t sum = 0;
    for (const auto& part : parts) sum += part.size();
    return sum;
  }

  std::vector<std::vector<Position>> parts;  // oldest first

 private:
  // EMS: until the current part is full, the past one counts as well.
  std::size_t limit() const { return past_ && parts.back().size() < queries_ ? 2 * queries_ - 1 : queries_; }

  std::size_t queries_;
  bool past_;
  std::size_t parts_, part_;
};

}  // namespace palimpsest::testing
