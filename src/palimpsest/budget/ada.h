// Budgets per head: the heads of a layer compete for the layer's total budget (AdaKV, arXiv 2407.11550, section 3).
#pragma once

#include <span>
#include <vector>

namespace palimpsest {

// scores[h]: scores of head h's unprotected tokens. Returns how many of them each head keeps, `total` in all (at most
// the number of scores). Each head gets max(0.2 of an even share, `min`), at most an even share; the rest is divided in
// proportion to the number of tokens that it has among the `total` highest scores of all heads (of equal scores the
// lower head first). Rounding goes to the largest remainders, of equal ones to the lower head first; no head gets more
// tokens than it has.
std::vector<int> ada_counts(std::span<const std::vector<float>> scores, int total, int min = 0);

}  // namespace palimpsest
