// How layers and heads share a budget: how many tokens each of them may keep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Tokens of each head, [layers * kv_heads]; empty: all have `budget`. `how` is "uniform" or the name of a file with one
// rule a line, `layer head tokens`, where * stands for all and a later line holds against an earlier one:
//
//   # DuoAttention-like: two heads of layer 3 keep much, the others little
//   *  *  128
//   3  0  4096
//   3  5  4096
//
// Heads that no line names have `budget`. Throws Error for what cannot be read, for heads that the model does not have,
// and for fewer tokens than `least`.
std::vector<int> split_budget(std::string_view how, int budget, int layers, int kv_heads, int least);

}  // namespace palimpsest
