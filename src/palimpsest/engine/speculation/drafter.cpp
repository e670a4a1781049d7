#include "palimpsest/engine/speculation/drafter.h"

#include <algorithm>

namespace palimpsest {

void LookupDrafter::append(std::span<const TokenId> tokens) {
  if (tokens.size() > kMaxText) text_.clear(), tokens = tokens.last(kMaxText);
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  if (text_.size() > 2 * kMaxText) text_.erase(text_.begin(), text_.end() - kMaxText);
}

std::span<const TokenId> LookupDrafter::draft(int max) {
  drafts_.clear();
  const std::ptrdiff_t size = std::ssize(text_);
  const TokenId* const text = text_.data();
  std::ptrdiff_t from = 0;  // the first token after the best match
  int longest = kMinMatch - 1;
  for (std::ptrdiff_t end = size - 1; end > 0 && longest < kMaxMatch; --end) {
    int match = 0;
    while (match < kMaxMatch && match < end && text[end - 1 - match] == text[size - 1 - match]) ++match;
    if (match > longest) longest = match, from = end;
  }
  if (longest < kMinMatch) return {};
  // A repetition that reaches the end of the text goes on in what is drafted.
  for (int i = 0; i < max; ++i)
    drafts_.push_back(from + i < size ? text[from + i] : drafts_[at(static_cast<int>(from + i - size))]);
  return drafts_;
}

}  // namespace palimpsest
