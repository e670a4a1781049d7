// A long stream of the model's own text: does memory stay, does speed stay, does the text stay text?
//
// Perplexity under the model itself has two blind spots, so three things are watched in every window of the stream:
//   nll        of each sampled token under the distribution that it was drawn from: the stream's own view. It rises
//              when the text falls apart, and falls when it repeats itself.
//   fresh_nll  of the window's text under a session that has a full cache and saw nothing else: a judge whose cache was
//              never evicted from.
//   distinct   4-grams that occur once for every 4-gram there is (1: no repetition at all).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "palimpsest/engine/session.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct StreamOptions {
  long long tokens = 100000;
  int windows = 100;         // equal parts of the stream (the last may be longer)
  long long settled = 2000;  // memory growth is counted from this token on
  int judged = 256;          // tokens of each window that the judge reads
  int judge_skip = 32;       // the first of them have too little context to be judged
};

struct StreamWindow {
  long long from = 0, to = 0;
  double nll = 0, fresh_nll = 0;  // mean, nats; fresh_nll NaN without a judge
  double distinct = 0;
  double ms_mean = 0, ms_median = 0;  // per token: sampling and one step
  std::int64_t resident = 0;          // bytes, at the window's end
  std::size_t cache_bytes = 0;        // keys, values and tables, there too
};

struct StreamResult {
  long long tokens = 0;
  bool complete = false;
  std::vector<StreamWindow> windows;
  std::vector<double> tenth_mean_ms, tenth_median_ms;     // time per token by tenths of the stream
  std::int64_t resident_settled = 0, resident_after = 0;  // at `settled`; the most seen after it, every 100 tokens
  long long evicted = 0;
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;

  std::int64_t growth() const { return resident_after - resident_settled; }
};

// Continues `prompt` (not empty) for options.tokens tokens, whatever end-of-text tokens come. `judge` may be null.
// `emit` gets every sampled token.
StreamResult run_stream(Session& session, Sampler& sampler, std::span<const TokenId> prompt,
                        const StreamOptions& options, Session* judge, TokenId begin,
                        const std::function<void(TokenId)>& emit,
                        const std::function<bool(long long done, long long total)>& progress);

}  // namespace palimpsest
