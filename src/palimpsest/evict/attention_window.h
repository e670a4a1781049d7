// The attention that each token received from the last queries, for policies that look at a window of them
// (AttentionWindow). It lies in columns of the slot table, which travel with the tokens:
//
//   queries   0 1 2 3 | 4 5 6 7 | 8 9 . .        a window of 12 in 3 parts of 4: query 12 clears the first column and
//   column       0    |    1    |    2           begins it anew
//
// Which column a query belongs to follows from its position: there is no other state. The sum over all queries
// (Signals::sums) is one more column, the last.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// Adds what a table's tokens received from the queries of this step, `weights` [slots]: those of the fresh tokens, the
// last AttentionWindow::queries of them at the most; `sums`: those of all, if signals.sums().
void add_to_window(const Signals& signals, SlotTable& table, std::span<const float> weights,
                   std::span<const float> sums = {});
// The same for tokens merged into those of the table; what they received is at [slots + place].
void add_to_window(const Signals& signals, const SlotTable& table, MergedTokens& merged, std::span<const float> weights,
                   std::span<const float> sums);
// The sum over the window, [slots]; if AttentionWindow::whole_layer, its mean over the heads of the table's layer.
void window_sum(const Signals& signals, const Cache& cache, int table, std::vector<float>& sum);

}  // namespace palimpsest
