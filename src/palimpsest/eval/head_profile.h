// Shares of a budget by head, measured on a text: heads that look at many tokens to repeat it get more of the budget.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr double kProfileKeep = 0.125;  // share of the tokens that is kept, over all heads
// Tokens of a text by which heads can be told apart: more than its sinks.
int min_profile_tokens(double keep);

// scores, [heads][tokens]: of KVzip (eval/repetition.h). Tokens of all heads compete by them, as in KVzip's paper
// (arXiv 2505.23416); a head's share of the budget is that of its tokens among the best `keep`, as by split=ada in a
// layer (budget/ada.h: at least 0.2), over an even share. All heads keep the first 4 tokens. [heads], mean 1
std::vector<double> profile_shares(std::span<const float> scores, int heads, double keep);

// The same of a text, which is read with the full cache, and repeated after `instruction`, on the CPU's fast path.
// `progress` counts the tokens of both; returning false ends it, and the shares are of nothing. Throws Error: a text
// that is too short, or longer than the trained context with a part of its repetition.
std::vector<double> head_profile(Decoder& decoder, std::span<const TokenId> text, std::span<const TokenId> instruction,
                                 double keep,
                                 const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
