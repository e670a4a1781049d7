// Stream perplexity: one pass over a text, the loss of every token given what the cache still holds, exp(mean).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/engine/session.h"

namespace palimpsest {

struct CurveBin {
  long long from = 0, to = 0;  // tokens of the text: [from, to)
  double nll = 0;              // mean, nats
  long long tokens = 0;        // that this is the mean of; of several texts more than to - from
};

struct Perplexity {
  long long predicted = 0;  // tokens that were predicted: all but the first
  bool complete = false;    // false: it was interrupted, and covers what was read until then
  double nll = 0;           // mean, nats
  double nll_error = 0;     // standard error of that mean, taking the tokens as independent
  std::vector<CurveBin> curve;
  std::vector<float> losses;  // of every predicted token, in order: what two methods are paired by
  double seconds = 0;
  long long evicted = 0;
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;  // pages and tables

  double value() const;  // exp(nll)
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(predicted) / seconds : 0; }
};

// A round number of tokens a bin, so that `predicted` tokens make about `bins` of them.
long long round_bin(long long predicted, int bins = 100);

// Several texts as one: means over all tokens, curves by place in the text, the greatest cache. Of the same bin.
Perplexity together(std::span<const Perplexity> texts);

// Reads `tokens` (a BOS first where the vocabulary wants one) through a cleared session. Throws Error for fewer than
// two tokens. `bin` tokens make one bin of the curve.
Perplexity perplexity(Session& session, std::span<const TokenId> tokens, long long bin,
                      const Session::Progress& progress = {});

}  // namespace palimpsest
