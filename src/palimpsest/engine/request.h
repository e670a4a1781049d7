// What is asked of the scheduler, and who hears of the answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "palimpsest/evict/method.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {

class KeptSequence;
class Snapshot;

using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<TokenId> prompt;  // at least one, but see `resume`
  Method method;                // every request has its own, with its own budget
  SamplerOptions sampler = {};
  long long max_tokens = 256;  // to write
  bool ignore_end = false;     // go on past end-of-text tokens
  int top_logprobs = -1;       // -1: no logarithms of probabilities; else of the token, and of so many likeliest
  std::optional<Clock::time_point> deadline = {};
  // A sequence to go on from, of the same method. The prompt is what follows; without one the text goes on where it
  // was, and the sampler where it was: to the token as if nothing had been between.
  std::shared_ptr<const Snapshot> resume = {};
  bool keep = false;  // RequestListener::kept() gets the sequence as a snapshot, if it ends well
};

enum class Finish {
  kEnd,        // the model ended its text
  kLength,     // max_tokens
  kStopped,    // the listener had enough
  kCancelled,  // by Scheduler::cancel
  kDeadline,
  kFailed  // see Usage::error
};

struct Written {
  TokenId token = -1;
  bool end = false;                                              // an end-of-text token, which is no part of the text
  float logprob = 0;                                             // ln of its probability, before any sampler option
  std::span<const std::pair<TokenId, float>> top_logprobs = {};  // likeliest first; valid during the call
};

struct Usage {
  long long prompt_tokens = 0, tokens = 0;  // read, written
  long long cached = 0;                     // of the prompt's, that others had read before: see PrefixCache
  long long evicted = 0;                    // tokens that left the cache
  int cache_tokens = 0;                     // that it held last
  std::size_t cache_bytes_peak = 0;
  double queue_ms = 0, ttft_ms = 0, total_ms = 0;  // from submit(): until admitted, until the first token, until now
  std::string error = {};
};

// Called by the scheduler's thread only, so quickly: hand over and return.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // Asked before every step: false, and the sequence waits (a reader that is too slow), keeping its pages.
  virtual bool ready() { return true; }
  virtual bool written(const Written& token) = 0;  // false: enough
  // Before finished(). Writing it is for another thread; its pages are the sequence's until it is let go.
  virtual void kept(std::shared_ptr<const KeptSequence>) {}
  virtual void finished(Finish finish, const Usage& usage) = 0;  // the last call, and exactly one
};

}  // namespace palimpsest
