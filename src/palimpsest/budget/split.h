// How layers and heads share a budget: how many tokens each of them may keep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct SplitOf {
  int budget = 0, guarded = 0;  // of a head; guarded: tokens of it that it keeps anyway
  std::vector<int> heads = {};  // KV heads of each layer
  int min = 1;                  // tokens that a head must have
};

// Tokens of each head, the first layer's heads first; empty: all have `budget`. `how` is
//
//   uniform   all have the same
//   pyramid   less from layer to layer (budget/pyramid.h)
//   ada       by scores, at a prompt's end (budget/ada.h): until then all have the same
//
// or the name of a file with one rule a line, `layer head tokens`, where * stands for all and a later line holds
// against an earlier one:
//
//   # two heads of layer 3 keep much, the others little
//   *  *  128
//   3  0  4096
//   3  5  4096
//
// A head that no line names has `budget`. With the word `streaming` for tokens a file is a list of DuoAttention's
// streaming heads (arXiv 2410.10819): they keep 320 tokens (there 64 sinks and the newest 256), or half the budget if
// that is less; what they leave of their budgets the heads share that no line names.
//
// Throws Error for what cannot be read, for heads that the model does not have, and for fewer tokens than `least`.
std::vector<int> split_budget(std::string_view how, const SplitOf& of);

// Whether `how` names a file: not one of the words above, nor `duo` (engine/sequence.h: the list beside the model).
bool split_is_file(std::string_view how);

}  // namespace palimpsest
