// Budgets that fall from layer to layer (PyramidKV, arXiv 2406.02069, section 4).
#pragma once

#include <vector>

namespace palimpsest {

// Tokens of each layer's heads, the first layer's first. Of a budget B all layers keep `guarded` tokens anyway; what is
// left, C = B - guarded, falls in equal steps, on the average C:
//
//   last = C / 20      first = 2 C - last      step = (first - last) / (layers - 1)      all rounded down
//
// `tokens`: how many there are; -1: not known yet. No layer is given more than there are: then first = tokens - guarded
// and last = 2 C - first. Of fewer than the budget, or than 2 C, all layers have the same. As the steps are rounded
// down, all layers together may have up to layers / 2 tokens more than `layers` budgets, each.
std::vector<int> pyramid_budgets(int budget, int guarded, int layers, long long tokens = -1);

}  // namespace palimpsest
