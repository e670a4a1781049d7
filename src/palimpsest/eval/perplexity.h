// Stream perplexity: one pass over a text; exp of the mean loss of each token given the current cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/session.h"

namespace palimpsest {

struct CurveBin {
  long long from = 0, to = 0;  // tokens of the text: [from, to)
  double nll = 0;              // mean, nats
  long long tokens = 0;        // tokens in the mean; more than to - from if several texts are merged
};

struct Perplexity {
  long long predicted = 0;  // predicted tokens: all but the first
  bool complete = false;    // false: interrupted; covers the tokens read until then
  double nll = 0;           // mean, nats
  double nll_error = 0;     // standard error of the mean, for independent tokens
  std::vector<CurveBin> curve;
  std::vector<float> losses;  // of every predicted token, in order; for paired comparison of methods
  double seconds = 0;
  long long evicted = 0;
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;  // pages and tables

  double value() const;  // exp(nll)
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(predicted) / seconds : 0; }
};

// A round number of tokens per bin, so that `predicted` tokens make about `bins` bins.
long long round_bin(long long predicted, int bins = 100);

// Merges results of several texts: means over all tokens, curves by position in the text, max cache size. All must have
// the same bin size.
Perplexity merge_perplexities(std::span<const Perplexity> texts);

// Throws Error, without a prompt, for methods that evict at the end of one: they would predict the whole text from a
// full cache. `method`: of a plan.
void check_perplexity(const Method& method, long long prompt);

// Clears the session and reads `tokens` (with BOS first if the vocabulary adds one). `bin`: tokens per bin of the
// curve. `prompt`: 0: all tokens are predicted, in prefill chunks. Otherwise the first `prompt` tokens are a prompt
// that is read and compressed first, and the tokens behind the next one are predicted, one by one, from the compressed
// cache. `first`: without a prompt, the first tokens that are read and not counted, nor the one behind them. Throws
// Error for fewer than two tokens (behind a prompt or `first`: three), and as check_perplexity() does.
Perplexity perplexity(Session& session, std::span<const TokenId> tokens, long long bin,
                      const Session::Progress& progress = {}, long long prompt = 0, long long first = 0);

}  // namespace palimpsest
