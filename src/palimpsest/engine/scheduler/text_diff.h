// Finds what texts that were read have in common with another text, in order: for edits.
//
//   read     | a a a a | x x | b b b b b b | c c c c |
//   text     | a a a a | y y y | b b b b b b | z |             common: a (the beginning), b
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct CommonRun {
  std::size_t in_read = 0, in_text = 0;  // where it begins
  std::size_t tokens = 0;

  bool operator==(const CommonRun&) const = default;
};

class TextDiff {
 public:
  TextDiff(std::span<const TokenId> text, std::size_t min);  // `text` must outlive this
  // The common beginning, if there is one, and runs of at least `min` common tokens behind it, without crossings. Runs
  // are found by sequences of `min` tokens that both texts have once (patience diff); a run without one is not found.
  // Takes O(n log n).
  std::vector<CommonRun> runs(std::span<const TokenId> read) const;

 private:
  std::span<const TokenId> text_;
  std::size_t min_;
  std::unordered_map<std::uint64_t, std::size_t> sequences_;  // by hash, where they begin
};

}  // namespace palimpsest
