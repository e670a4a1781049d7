// Generates a long stream and measures whether memory, speed and text quality stay constant.
//
// Perplexity under the generating model alone is ambiguous, so each window of the stream has three measures:
//   nll        of each sampled token under the distribution that it was drawn from. Rises when the text degenerates,
//              falls when it repeats itself.
//   full_cache_nll  of the window's text under the judge: a separate session with a full cache that reads only this
//   window. distinct   distinct 4-grams / all 4-grams (1: no repetition).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

struct StreamOptions {
  long long tokens = 100000;
  int windows = 100;         // equal parts of the stream (the last may be longer)
  long long settled = 2000;  // memory growth is measured from this token on
  int judged = 256;          // tokens of each window that the judge reads
  int judge_skip = 32;       // the first of them are not counted: too little context
};

struct StreamWindow {
  long long from = 0, to = 0;
  double nll = 0, full_cache_nll = 0;  // mean, nats; full_cache_nll NaN without a judge
  double distinct = 0;
  double ms_mean = 0, ms_median = 0;  // per token: sampling and one step
  std::int64_t resident = 0;          // bytes, at the window's end
  std::size_t cache_bytes = 0;        // keys, values and tables, at the window's end
};

struct StreamResult {
  long long tokens = 0;
  bool complete = false;
  std::vector<StreamWindow> windows;
  std::vector<double> tenth_mean_ms, tenth_median_ms;     // time per token by tenths of the stream
  std::int64_t resident_settled = 0, resident_after = 0;  // at `settled`; max after it, sampled every 100 tokens
  long long evicted = 0;
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;

  std::int64_t growth() const { return resident_after - resident_settled; }
};

// Continues `prompt` (not empty) for options.tokens tokens, past end-of-text tokens. `judge` may be null. `emit` gets
// every sampled token.
StreamResult run_stream(Session& session, Sampler& sampler, std::span<const TokenId> prompt,
                        const StreamOptions& options, Session* judge, TokenId begin,
                        const std::function<void(TokenId)>& emit,
                        const std::function<bool(long long done, long long total)>& progress);

}  // namespace palimpsest
