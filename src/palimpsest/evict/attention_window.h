// Attention weights of the last queries, summed per token, for policies with an AttentionWindow. They are stored in
// columns of the slot table, which move with their tokens:
//
//   queries   0 1 2 3 | 4 5 6 7 | 8 9 . .        a window of 12 in 3 parts of 4: query 12 clears the first column and
//   column       0    |    1    |    2           writes it again
//
// The column of a query follows from its position: there is no other state. The sum over all queries (Signals::sums)
// is one more column, the last.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// Adds this step's weights, [slots]. `weights`: summed over the last AttentionWindow::queries queries of the step at
// most; `sums`: over all of them, if signals.sums().
void add_to_window(const Signals& signals, SlotTable& table, std::span<const float> weights,
                   std::span<const float> sums = {});
// The same for merged tokens; their weights are at [slots + entry].
void add_to_window(const Signals& signals, const SlotTable& table, MergedTokens& merged, std::span<const float> weights,
                   std::span<const float> sums);
// The sum over the window, [slots]; if AttentionWindow::whole_layer, its mean over the heads of the table's layer.
void window_sum(const Signals& signals, const Cache& cache, int table, std::vector<float>& sum);

}  // namespace palimpsest
