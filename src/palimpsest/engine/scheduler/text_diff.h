// Finds what two texts have in common, in order: for edits of a text that was read.
//
//   read     | a a a a | x x | b b b b b b | c c c c |
//   text     | a a a a | y y y | b b b b b b | z |             common: a (the beginning), b
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct CommonRun {
  std::size_t in_read = 0, in_text = 0;  // where it begins
  std::size_t tokens = 0;

  bool operator==(const CommonRun&) const = default;
};

// The common beginning, if there is one, and runs of at least `min` common tokens behind it, without crossings. Runs
// are found by their sequences of `min` tokens that both texts have once (patience diff); a run that has none is not
// found. Takes O(n log n) of both texts.
std::vector<CommonRun> common_runs(std::span<const TokenId> read, std::span<const TokenId> text, std::size_t min);

}  // namespace palimpsest
