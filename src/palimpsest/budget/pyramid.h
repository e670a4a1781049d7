// Budgets that decrease from layer to layer (PyramidKV, arXiv 2406.02069, section 4).
#pragma once

#include <vector>

namespace palimpsest {

// Budget per head, [layers]. All layers keep `guarded` protected tokens; the rest, C = budget - guarded, decreases in
// equal steps with mean C:
//
//   last = C / 20      first = 2 C - last      step = (first - last) / (layers - 1)      all rounded down
//
// `tokens`: the number of tokens; -1: unknown. If first > tokens - guarded, then first = tokens - guarded and
// last = 2 C - first. With fewer tokens than the budget, or than 2 C, all layers have the same. Because steps are
// rounded down, the mean over the layers may exceed the budget by up to layers / 2 tokens.
std::vector<int> pyramid_budgets(int budget, int guarded, int layers, long long tokens = -1);

}  // namespace palimpsest
