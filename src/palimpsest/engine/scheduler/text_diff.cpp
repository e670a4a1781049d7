#include "palimpsest/engine/scheduler/text_diff.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

constexpr std::size_t kSeveral = SIZE_MAX;

// Calls visit(hash, begin) for each sequence of `length` tokens.
template <typename Visit>
void for_each_sequence(std::span<const TokenId> tokens, std::size_t length, Visit visit) {
  constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;
  std::uint64_t hash = 0, power = 1;  // kBase^length
  for (std::size_t i = 0; i < length; ++i) power *= kBase;
  for (std::size_t end = 1; end <= tokens.size(); ++end) {
    hash = hash * kBase + static_cast<std::uint64_t>(tokens[end - 1]) + 1;
    if (end > length) hash -= power * (static_cast<std::uint64_t>(tokens[end - 1 - length]) + 1);
    if (end >= length) visit(hash, end - length);
  }
}

struct Anchor {
  std::size_t in_read, in_text;
};

// The longest chain of anchors that ascends in both texts.
std::vector<Anchor> longest_chain(const std::vector<Anchor>& by_text) {
  std::vector<std::size_t> ends;  // [length - 1] the last anchor of the best chain of this length
  std::vector<std::size_t> before(by_text.size(), kSeveral);
  for (std::size_t i = 0; i < by_text.size(); ++i) {
    const auto at = std::ranges::lower_bound(ends, by_text[i].in_read, {},
                                             [&](std::size_t anchor) { return by_text[anchor].in_read; });
    if (at != ends.begin()) before[i] = *(at - 1);
    if (at == ends.end())
      ends.push_back(i);
    else
      *at = i;
  }
  std::vector<Anchor> chain;
  for (std::size_t i = ends.empty() ? kSeveral : ends.back(); i != kSeveral; i = before[i]) chain.push_back(by_text[i]);
  std::ranges::reverse(chain);
  return chain;
}

}  // namespace

TextDiff::TextDiff(std::span<const TokenId> text, std::size_t min) : text_(text), min_(min) {
  assert(min > 0);
  if (text.size() < min) return;
  sequences_.reserve(text.size() - min + 1);
  for_each_sequence(text, min, [this](std::uint64_t hash, std::size_t at) {
    if (const auto [known, added] = sequences_.emplace(hash, at); !added) known->second = kSeveral;
  });
}

std::vector<CommonRun> TextDiff::runs(std::span<const TokenId> read) const {
  const std::span<const TokenId> text = text_;
  std::vector<CommonRun> runs;
  const auto prefix = static_cast<std::size_t>(std::ranges::mismatch(read, text).in1 - read.begin());
  if (prefix > 0) runs.push_back({0, 0, prefix});
  std::vector<Anchor> anchors;
  for_each_sequence(read.subspan(prefix), min_, [&](std::uint64_t hash, std::size_t at) {
    const auto found = sequences_.find(hash);
    if (found != sequences_.end() && found->second != kSeveral && found->second >= prefix)
      anchors.push_back({prefix + at, found->second});
  });
  std::ranges::stable_sort(anchors, {}, &Anchor::in_text);
  // Of those that `read` has more than once, none.
  std::size_t kept = 0;
  for (std::size_t i = 0, end = 0; i < anchors.size(); i = end) {
    while (end < anchors.size() && anchors[end].in_text == anchors[i].in_text) ++end;
    if (end == i + 1) anchors[kept++] = anchors[i];
  }
  anchors.resize(kept);
  std::size_t read_end = prefix, text_end = prefix;
  for (const auto& [i, j] : longest_chain(anchors)) {
    if (i < read_end || j < text_end) continue;  // in the last run
    std::size_t before = 0, behind = 0;
    while (before < std::min(i - read_end, j - text_end) && read[i - before - 1] == text[j - before - 1]) ++before;
    while (behind < std::min(read.size() - i, text.size() - j) && read[i + behind] == text[j + behind]) ++behind;
    if (before + behind < min_) continue;  // other tokens of the same hash
    runs.push_back({i - before, j - before, before + behind});
    read_end = i + behind, text_end = j + behind;
  }
  return runs;
}

}  // namespace palimpsest
