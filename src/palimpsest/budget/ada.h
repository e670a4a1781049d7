// Budgets of a layer's heads by what they would have kept together (AdaKV, arXiv 2407.11550, section 3).
#pragma once

#include <span>
#include <vector>

namespace palimpsest {

// scores[h]: those of head h's tokens that may leave. How many of them each head keeps, `total` in all (no more than
// there are): each head a share of 0.2 of an even one, or `least` if that is more, of the rest as many as it has among
// the `total` highest of all heads. Of equal scores those of earlier heads are among them. What is left by rounding
// goes to the largest remainders; no head is given more than it has.
std::vector<int> ada_counts(std::span<const std::vector<float>> scores, int total, int min = 0);

}  // namespace palimpsest
