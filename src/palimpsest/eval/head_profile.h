// Shares of a budget by head, measured on a text: heads whose attention returns to many tokens get more of them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

struct ProfileOptions {
  int sinks = 64, recent = 256;  // tokens that every head keeps
  double keep = 0.125;           // share of the other tokens that is kept, over all heads
};

// future[head]: attention that each competing token of a head will get; all heads have as many. Returns for each head
// its share of the budget over an even share, if `keep` of the tokens are kept over all heads (at least one each).
std::vector<double> profile_shares(std::span<const std::vector<float>> future, double keep);

// Returns for each KV head, [heads], its share of the budget over an even share; the mean is 1. The second half of the
// text is the future of the first: the tokens of all heads compete by the attention that they get from it (mean over
// the queries of a group), and a head's share is that of its tokens among the best, as by split=ada in a layer
// (budget/ada.h: at least 0.2). Profiled once per model after LU-KV (arXiv 2602.08585). Reads the text with the full
// cache, on the CPU's fast path. Throws Error for a text that is too short.
std::vector<double> head_profile(Decoder& decoder, std::span<const TokenId> text, const ProfileOptions& options,
                                 const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
